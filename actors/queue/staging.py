"""QueueStaging: claims and stashes of one queue, and looks that change nothing (docs/internals/staging.md).

    Stage, Renew, Settle, Alarm --> entries for the log          Claim, Stash, Unstash (committed) --> ledger, leases
    ReadSlice, Leaf --> Seen: messages, and nothing changes

The leader takes messages out of its line and proposes; whether a claim is made, renewed or lapses is decided in the
ledger, in the order of the log.
"""

from collections.abc import Sequence

from wakeq.actors.mail import Asker, Outcome, Propose, Refusal
from wakeq.actors.queue.deliveries import ANSWER_BYTES_MAX, Lead
from wakeq.actors.queue.endings import QueueEndings
from wakeq.actors.queue.staging_mail import Leaf, ReadSlice, Renew, Seen, Settle, Stage
from wakeq.actors.runtime import Alarm
from wakeq.protocol.log.entries import (
    Claim,
    ClaimAction,
    Entry,
    Extended,
    Reason,
    Result,
    Results,
    Stash,
    Token,
    Unstash,
    UnstashAction,
)
from wakeq.protocol.log.outcomes import WHOLE
from wakeq.protocol.queue.bodies import Found
from wakeq.protocol.queue.leases.staged_ends import End, StagedEnds
from wakeq.protocol.queue.staging import SOURCE, STASH, Epoch, Name
from wakeq.protocol.queue.view import state_of


class QueueStaging(QueueEndings):
    """Claims and stashes; a queue that has neither is no larger for it."""

    def _say_code(self, asker: Asker, code: int) -> None:
        asker.tell(Outcome(self.name, self.ledger.id, [code]))

    def _is_refused(self, asker: Asker, refusal: Refusal | None = None) -> bool:
        """Return whether this node cannot or may not answer; then the asker is told why."""
        refusal = self._refusal() or refusal
        if refusal is None and not self.exists:
            refusal = Refusal("Q_NOT_FOUND", f"queue {self.name} does not exist; publish to it first")
        if refusal is not None:
            asker.tell(refusal)
        return refusal is not None

    def _propose_one(self, entry: Entry, asker: Asker | None) -> None:
        self._raft_log.tell(Propose([(entry, asker)]))

    # --- claims ----------------------------------------------------------------------------------------------------

    def on_stage(self, message: Stage) -> None:
        """Take messages out of the line for an epoch that is not there yet."""
        asker = message.asker
        found = self._open_epoch(message.source, message.epoch)
        if found is not None:
            asker.tell(Outcome(self.name, self.ledger.id, found.sizes))
            return
        staging = self.ledger.staging
        code = 0 if staging is None else staging.refusal(message.source, message.epoch, self._now_ms())
        if code:
            self._say_code(asker, code)
            return
        leases, now_ms = self.leases, self._now_ms()
        assert leases is not None, "else it was refused"
        numbers = leases.take(message.count, now_ms)
        if not numbers:
            asker.tell(None)
            return
        leases.leave(numbers)
        first, leases.sequence = leases.sequence + 1, leases.sequence + len(numbers)
        self._propose_one(self._staged(message, numbers, first, now_ms + message.keep_ms), asker)
        self._settle(now_ms)

    def _staged(self, message: Stage, numbers: list[int], first_sequence: int, until_ms: int) -> Claim:
        return Claim(
            self.name,
            self.ledger.id,
            ClaimAction.STAGED,
            message.source,
            message.epoch,
            numbers,
            first_sequence=first_sequence,
            slices=message.slices,
            until_ms=until_ms,
            worker=message.worker,
            door=message.door,
        )

    def on_renew(self, message: Renew) -> None:
        """Put off the end of a source's open epochs."""
        if self._is_refused(message.asker):
            return
        until_ms, leases = self._now_ms() + message.keep_ms, self.leases
        assert leases is not None, "else it was refused"
        if leases.ends is None or not leases.ends.renew((SOURCE, message.source), until_ms):
            self._say_code(message.asker, Result.EPOCH_EXPIRED)
            return
        renewed = Claim(self.name, self.ledger.id, ClaimAction.RENEWED, message.source, until_ms=until_ms)
        self._propose_one(renewed, message.asker)

    def on_settle(self, message: Settle) -> None:
        """Acknowledge all open epochs up to this one; if none is open, say at once that none was, or that it lapsed."""
        if self._is_refused(message.asker):
            return
        if not message.epoch:
            self._say_code(message.asker, self._next_epoch(message.source))
            return
        staging = self.ledger.staging
        epochs = [] if staging is None else staging.open_epochs(message.source, message.epoch)
        if staging is not None and staging.has_lapsed(message.source, message.epoch):
            self._say_code(message.asker, Result.EPOCH_EXPIRED)
            return
        if not epochs:
            message.asker.tell(Outcome(self.name, self.ledger.id, []))
            return
        rows = [row for one in epochs for row in one.rows()]
        self._propose_end(ClaimAction.SETTLED, message.source, message.epoch, rows, message.asker)

    def _propose_end(
        self, action: ClaimAction, source: str, epoch: int, rows: list[tuple[int, Token]], asker: Asker | None = None
    ) -> None:
        numbers, tokens = [number for number, _ in rows], [token for _, token in rows]
        self._propose_one(Claim(self.name, self.ledger.id, action, source, epoch, numbers, tokens), asker)

    def _open_epoch(self, source: str, epoch: int) -> Epoch | None:
        """Return an epoch that is open and stays so for now."""
        ends = None if self.leases is None else self.leases.ends
        if self.ledger.staging is None or (ends is not None and (SOURCE, source, epoch) in ends.lapsing):
            return None
        return self.ledger.staging.epoch(source, epoch)

    def _next_epoch(self, name: str) -> int:
        """Return the first epoch that is open, or else the number of the next one."""
        source = None if self.ledger.staging is None else self.ledger.staging.sources.get(name)
        if source is None:
            return 1
        stays = (one.epoch for one in source.epochs if self._open_epoch(name, one.epoch) is not None)
        return min(stays, default=source.highest + 1)

    def _apply_claim(self, entry: Claim, index: int, term: int, at_ms: int) -> Results:
        results = self.ledger.claim(entry, term, at_ms)
        leases = self.leases
        if entry.action is ClaimAction.STAGED:
            self._note_passed_over(entry, index, results)
        if entry.action is ClaimAction.SETTLED:
            self._forget([number for number, code in zip(entry.numbers, results, strict=True) if not code])
        elif leases is not None and entry.queue_id == self.ledger.id:
            if entry.action is ClaimAction.STAGED:
                leases.claimed(entry.numbers, self._now_ms())
            elif entry.action is ClaimAction.LAPSED:
                self._take_back(entry, results)
        self._watch((SOURCE, entry.source))
        return results

    def _note_passed_over(self, entry: Claim, index: int, results: Results) -> None:
        """Remember for the readers of the log which messages of an entry its claim does not have."""
        made = None if self.ledger.staging is None else self.ledger.staging.epoch(entry.source, entry.epoch)
        is_mine = made is not None and made.first_sequence == entry.first_sequence
        taken = set(made.numbers) if made is not None and is_mine else set()
        if len(taken) < len(entry.numbers):
            code = min(results[0], Result.UNKNOWN)  # that of the refusal, if it was refused as a whole
            passed_over = (place for place, number in enumerate(entry.numbers) if number not in taken)
            self._note([(index, place, int(code)) for place in passed_over])

    def _take_back(self, entry: Claim, results: Results) -> None:
        """The outcome of a lapse: its messages come back, or stay out if the claim was renewed in time."""
        leases, now_ms = self.leases, self._now_ms()
        assert leases is not None, "only a leader hands out"
        if leases.ends is not None:
            leases.ends.lapsing.discard((SOURCE, entry.source, entry.epoch))
        for number, code in zip(entry.numbers, results, strict=True):
            if code == Result.DONE:
                leases.came_back(number, now_ms)
            else:
                leases.stays([number], now_ms)

    def _forget(self, numbers: list[int]) -> None:
        """Drop what a queue process knows of messages that left the ledger."""
        stored = self.bodies.remove(numbers)
        if stored:
            aliased = self.ledger.aliased  # imported messages: the ledger hands over their uids itself
            gone = [number for number in stored if number not in aliased] if aliased else stored
            if self._stored_gone:
                self._stored_gone += gone
            else:
                self._stored_gone = gone
        if self.leases is not None:
            self.leases.removed(numbers)

    # --- stashes ---------------------------------------------------------------------------------------------------

    def _apply_stash(self, entry: Stash, index: int, term: int, at_ms: int) -> Results:
        results = self.ledger.stash(entry, at_ms)
        if results and results[0] > 0:
            self.bodies.publish(results, entry.drafts, at_ms)
        self._watch((STASH, entry.stash))
        return results

    def _apply_unstash(self, entry: Unstash, index: int, term: int, at_ms: int) -> Results:
        results, ranges = self.ledger.unstash(entry, at_ms)
        self._note([(index, len(numbers), numbers.start) for numbers in ranges])  # the log has only their names
        if ranges and entry.action is UnstashAction.PUBLISHED and results[0] == Result.DONE:
            self._note([(index, WHOLE, Result.REPEATED)])
        for numbers in ranges:
            living = self.ledger.living_among(numbers)
            if len(living) < len(numbers):
                self._forget(sorted(set(numbers).difference(living)))
            if results[0] > 0 and self.leases is not None:
                self.leases.published(living, at_ms, self._now_ms)
        if entry.action is UnstashAction.LAPSED and self.leases is not None and self.leases.ends is not None:
            self.leases.ends.lapsing.difference_update([(STASH, name, 0) for name, _ in entry.stashes])
        for name, _ in entry.stashes:
            self._watch((STASH, name))
        return results

    # --- time ------------------------------------------------------------------------------------------------------

    def on_lead(self, message: Lead) -> None:
        super().on_lead(message)
        staging = self.ledger.staging
        for name in () if staging is None else staging.names():
            self._watch(name)
        if self.leases is not None:
            self._settle(self._now_ms())

    def _watch(self, name: Name) -> None:
        """Note when what is staged under a name ends, so that the leader ends it in time."""
        leases, staging = self.leases, self.ledger.staging
        if leases is not None and staging is not None:
            if leases.ends is None:
                leases.ends = StagedEnds()
            leases.ends.set(name, staging.ends_of(name))

    def on_alarm(self, message: Alarm) -> None:
        if self.leases is not None and self.leases.ends is not None:
            for key in self.leases.ends.over(self._now_ms()):
                self._lapse(key)
        super().on_alarm(message)

    def _lapse(self, key: End) -> None:
        """Propose that something staged is over; messages that failed for the last time become dead letters."""
        kind, name, number = key
        if kind == STASH:
            self._propose_one(Unstash(self.name, UnstashAction.LAPSED, [(name, 0)]), None)
            return
        leases, staging, now_ms = self.leases, self.ledger.staging, self._now_ms()
        assert leases is not None, "only a leader looks at the time"
        assert staging is not None, "something ends"
        epoch = staging.epoch(name, number)
        assert epoch is not None, "what ends is open"
        last = {one for one, token in epoch.rows() if self._is_under(one, token) and self._is_last(one, Reason.TIMEOUT)}
        if last:  # as ordinary leases that end now: on_alarm makes dead letters of them
            for one in last:
                leases.extend(one, now_ms)
            self._propose_one(Extended(self.name, self.ledger.id, list(last), [now_ms] * len(last)), None)
        rest = [(one, token) for one, token in epoch.rows() if one not in last]
        leases.leave([one for one, _ in rest])
        self._propose_end(ClaimAction.LAPSED, name, number, rest)

    # --- looking ---------------------------------------------------------------------------------------------------

    def on_read_slice(self, message: ReadSlice) -> None:
        """Answer with the messages of a slice that are still out under its claim."""
        asker = message.asker
        if self._is_refused(asker):
            return
        epoch = self._open_epoch(message.source, message.epoch)
        if epoch is None or epoch.until_ms <= self._now_ms():
            self._say_code(asker, Result.EPOCH_EXPIRED)
            return
        if message.slice >= epoch.slices:
            asker.tell(Refusal("BAD_FIELD", f"slice is {message.slice}; this epoch has {epoch.slices}, from 0"))
            return
        start, end = epoch.span_of(message.slice)
        at = start + message.offset
        rows = epoch.rows(at, min(end, at + message.count))
        numbers = [number for number, token in rows if self._is_under(number, token)]
        kept = numbers[: max(1, self.ledger.count_within(numbers, ANSWER_BYTES_MAX))]
        went_to = at + message.count if len(kept) == len(numbers) else epoch.numbers.index(numbers[len(kept)], at)
        self._look(asker, kept, 1, went_to - start if went_to < end else 0)

    def _is_under(self, number: int, token: Token) -> bool:
        side = self.ledger.sides.get(number)
        return side is not None and side.until_ms > 0 and (side.term, side.sequence) == token

    def on_leaf(self, message: Leaf) -> None:
        """Answer with messages in the order of publication, whatever their state, but without what is stashed."""
        if self._is_refused(message.asker):
            return
        last = min(message.last or self.ledger.next_number, self.ledger.next_number - 1)
        numbers = self.ledger.living_between(message.after, last, message.count)
        kept = numbers[: max(1, self.ledger.count_within(numbers, ANSWER_BYTES_MAX))]
        is_end = len(kept) == len(numbers) < message.count or not numbers
        self._look(message.asker, kept, 0, 0 if is_end else kept[-1], self.ledger.next_number - 1)

    def _look(self, asker: Asker, numbers: Sequence[int], under_way: int, goes_on: int, last: int = 0) -> None:
        """Answer with these messages; `under_way`: how many of their deliveries are still under way, 0 or 1."""

        def show(found: Found) -> None:
            asker.tell(self._seen(numbers, found, under_way, goes_on, last))

        self._with_found(numbers, asker, show)

    def _seen(self, numbers: Sequence[int], found: Found, under_way: int, goes_on: int, last: int) -> Seen:
        ledger, now_ms = self.ledger, self._now_ms()
        living = [number for number in numbers if ledger.lives(number)]
        sides = [ledger.sides.get(number) for number in living]
        earlier = [0 if side is None else side.deliveries - under_way for side in sides]
        states = [] if under_way else [state_of(ledger, self.leases, number, now_ms) for number in living]
        drafts, published = [found[number][0] for number in living], [found[number][1] for number in living]
        return Seen(self._uids_of(living), drafts, earlier, published, states, goes_on, last, self.term)
