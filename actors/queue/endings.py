"""QueueEndings: how the deliveries of one queue end without an acknowledgement, or are given more time.

    Nack, Touch, Gone, Alarm --> leases --> Released, Extended, Expired, dead letters: entries for the log

The leader computes when a message may be tried again (backoff, jitter) and proposes it; the ledger decides when the
entry is committed.
"""

from functools import partial
from typing import Any

from wakeq.actors.mail import (
    Answered,
    Asker,
    Deserted,
    Gone,
    HeldBack,
    Nack,
    Outcome,
    Propose,
    Refusal,
    Touch,
    Unsent,
)
from wakeq.actors.queue.deliveries import QueueDeliveries
from wakeq.actors.runtime import Alarm
from wakeq.protocol.catalog import DEAD_SUFFIX, dead_letter_of
from wakeq.protocol.log.entries import (
    ANY_TOKEN,
    Ack,
    Expired,
    Extended,
    Publish,
    Reason,
    Released,
    Result,
    Token,
)
from wakeq.protocol.names import NAME_BYTES_MAX
from wakeq.protocol.queue.bodies import Found
from wakeq.protocol.queue.dead_letters import dead_letter
from wakeq.protocol.queue.leases.audience import NEVER
from wakeq.protocol.queue.leases.leases import Leases
from wakeq.protocol.uid import parse


class QueueEndings(QueueDeliveries):
    """Leases that end, and messages that expire."""

    def _number_of(self, uid: str) -> int:
        """Return the number of a uid of this incarnation, -1 for any other."""
        parsed = parse(uid)
        if parsed is not None and parsed[0] == self.ledger.id:
            return parsed[1]
        return self.ledger.aliases.get(uid, -1)

    def on_touch(self, message: Touch) -> None:
        leases, refusal = self.leases, self._refusal()
        if leases is None or refusal is not None:
            message.asker.tell(refusal)
            return
        now_ms = self._now_ms()
        numbers = list(map(self._number_of, message.uids))
        tokens = message.tokens
        results = [self._may_touch(leases, number, token) for number, token in zip(numbers, tokens, strict=True)]
        mine = [number for number, result in zip(numbers, results, strict=True) if result is Result.DONE]
        untils_ms = [now_ms + (message.timeout_ms or self.ledger.timeout_of(number)) for number in mine]
        for number, until_ms in zip(mine, untils_ms, strict=True):
            leases.extend(number, until_ms)
        self._answer_touch(message.asker, results, Extended(self.name, self.ledger.id, mine, untils_ms))

    def _may_touch(self, leases: Leases, number: int, token: Token) -> Result:
        """Return DONE if whoever shows this token holds the message."""
        held = leases.held.get(number)
        if not self.ledger.lives(number) or number in leases.leaving:
            return Result.UNKNOWN
        if held is None or held.until_ms == NEVER:  # under a claim: only renewing that keeps it
            return Result.UNKNOWN if token == ANY_TOKEN else Result.STALE
        return Result.DONE if token in (ANY_TOKEN, held.token) else Result.STALE

    def _answer_touch(self, asker: Asker, results: list[Result], entry: Extended) -> None:
        """Answer when the log has it: a leader that was cut off must not promise more time."""
        outcome = Outcome(self.name, self.ledger.id, [int(result) for result in results])
        answer = Answered([(asker.ticket, asker.place, outcome)])
        if not entry.numbers:
            asker.process.tell(answer)
            return
        gone = Outcome(self.name, self.ledger.id, [int(Result.UNKNOWN)] * len(results))
        held_back = HeldBack(answer, Answered([(asker.ticket, asker.place, gone)]))
        self._raft_log.tell(Propose([(entry, Asker(asker.process, held_back, None))]))

    def on_nack(self, message: Nack) -> None:
        refusal = self._refusal()
        if refusal is not None:
            message.asker.tell(refusal)
            return
        numbers, tokens, places, unknown = [], [], [], []
        asker = message.asker
        for uid, token, place in zip(message.uids, message.tokens, asker.place, strict=True):
            number = self._number_of(uid)
            if self.leases is not None and number in self.leases.held:
                numbers.append(number)
                tokens.append(token)
                places.append(place)
            else:
                unknown.append(place)
        if unknown:
            outcome = Outcome(self.name, self.ledger.id, [Result.UNKNOWN] * len(unknown))
            asker.process.tell(Answered([(asker.ticket, unknown, outcome)]))
        self._end_deliveries(
            numbers,
            tokens,
            message.reason,
            delay_ms=message.delay_ms,
            error=message.error,
            asker=Asker(asker.process, asker.ticket, places),
        )

    def on_unsent(self, message: Unsent) -> None:
        """Nobody has seen these deliveries.  Whether they end is decided by the log, as nobody else can know."""
        leases = self.leases
        if leases is None:
            return  # who leads now lets them time out
        numbers, tokens = [], []
        for lease in message.leases:
            number, held = lease.number, leases.held.get(lease.number)
            is_ours = lease.queue_id == self.ledger.id and number not in leases.leaving
            if is_ours and held is not None and held.token == lease.token:
                numbers.append(number)
                tokens.append(lease.token)
        self._end_deliveries(numbers, tokens, Reason.RETURNED)

    def _end_deliveries(
        self,
        numbers: list[int],
        tokens: list[Token],
        reason: Reason,
        *,
        delay_ms: int | None = None,
        error: str = "",
        asker: Asker | None = None,
    ) -> None:
        """Propose that deliveries end: back into the line, or to the dead letters.

        `asker.place`, if there is one, is a list with a place for each number.
        """
        if not numbers:
            return
        assert self.leases is not None, "only a leader ends deliveries"
        places = asker.place if asker is not None else [None] * len(numbers)
        back: list[tuple[int, Token, Any]] = []
        dead: list[tuple[int, Token, Any]] = []
        for row in zip(numbers, tokens, places, strict=True):
            (dead if self._is_last(row[0], reason) else back).append(row)
        self.leases.leave(numbers)
        if back:
            self._propose_released(back, reason, delay_ms, error, asker)
        for number, token, place in dead:
            mine = None if asker is None else Asker(asker.process, asker.ticket, [place])
            self._propose_dead(number, token, reason, error, mine)

    def _is_last(self, number: int, reason: Reason) -> bool:
        """Return whether the message goes to the dead letters when its delivery ends for this reason."""
        if reason is Reason.RETURNED:
            return False
        allowed = self.ledger.policies.max_deliveries
        return reason >= Reason.REJECTED or 0 < allowed <= self._failures_of(number)

    def _failures_of(self, number: int) -> int:
        """Return how often a message has failed, counting the delivery that ends now."""
        side = self.ledger.sides.get(number)
        return 1 if side is None else side.failures + 1

    def _deliveries_of(self, number: int) -> int:
        """Return how often a message was delivered, counting a delivery that is not in the ledger yet."""
        side = self.ledger.sides.get(number)
        held = self.leases.held.get(number) if self.leases is not None else None
        if side is None:
            return 1
        return side.deliveries + (held is not None and held.token > (side.term, side.sequence))

    def _propose_released(
        self,
        rows: list[tuple[int, Token, Any]],
        reason: Reason,
        delay_ms: int | None,
        error: str,
        asker: Asker | None,
    ) -> None:
        due_ms = self._services.due_ms
        retry = self.ledger.policies.retry
        if delay_ms is None and reason is Reason.RETURNED:
            delay_ms = 0  # nothing failed, so there is nothing to wait for
        dues = []
        for number, _, _ in rows:
            failures = self._failures_of(number)
            wait_ms = retry.after_ms(failures, self._services.chance()) if delay_ms is None else delay_ms
            dues.append(due_ms(wait_ms) if wait_ms else 0)
        numbers, tokens, places = (list(column) for column in zip(*rows, strict=True))
        entry = Released(self.name, self.ledger.id, numbers, dues, tokens, reason, error)
        mine = None if asker is None else Asker(asker.process, asker.ticket, places)
        self._raft_log.tell(Propose([(entry, mine)]))

    def _propose_dead(self, number: int, token: Token, reason: Reason, error: str, asker: Asker | None) -> None:
        """Move a message to its dead-letter queue, in one entry: never both, never neither."""
        self._with_found([number], asker, partial(self._propose_letter, number, token, reason, error, asker))

    def _propose_letter(
        self, number: int, token: Token, reason: Reason, error: str, asker: Asker | None, found: Found
    ) -> None:
        if not self.ledger.lives(number):
            if asker is not None:
                outcome = Outcome(self.name, self.ledger.id, [Result.UNKNOWN])
                asker.tell(outcome)
            return
        queue = dead_letter_of(self.name, self.ledger.policies)
        if len(queue) > NAME_BYTES_MAX:  # the policies forbid it only to queues with max_deliveries
            self._refuse_dead(number, asker)
            return
        letter = dead_letter(
            found[number][0],
            self.ledger.sides.get(number),
            origin=self.name,
            origin_uid=self._uids_of([number])[0],
            deliveries=self._deliveries_of(number),
            reason=reason,
            error=error,
        )
        publish = Publish(queue, [letter], forced=True)
        entry = Ack(self.name, self.ledger.id, [number], [token], [publish], dead=True)
        self._raft_log.tell(Propose([(entry, asker)]))

    def _refuse_dead(self, number: int, asker: Asker | None) -> None:
        """There can be no dead-letter queue: the message stays where it is."""
        if self.leases is not None:
            self.leases.stays([number], self._now_ms())
        if asker is not None:
            detail = f"the queue's name with {DEAD_SUFFIX} is longer than {NAME_BYTES_MAX}; update its dead_letter"
            asker.tell(Refusal("BAD_NAME", detail))

    # --- time ------------------------------------------------------------------------------------------------------

    def on_alarm(self, message: Alarm) -> None:
        leases = self.leases
        if leases is None:
            return
        now_ms = self._now_ms()
        self._alarm_ms = 0
        leases.fell_due(now_ms)
        over = leases.ran_out(now_ms)
        self._end_deliveries(over, [leases.held[number].token for number in over], Reason.TIMEOUT)
        expired = [number for number in leases.expired(now_ms) if number not in leases.leaving]
        if expired:
            leases.leave(expired)
            self._raft_log.tell(Propose([(Expired(self.name, self.ledger.id, expired), None)]))
        for waiter in leases.waits_over(now_ms):
            self._end_wait(waiter, None)
        self._settle(now_ms)

    def on_gone(self, message: Gone) -> None:
        leases = self.leases
        if leases is None:
            return
        if message.asleep_only:
            leases.fetched(message.subscriber)
        else:
            leases.gone(message.subscriber)
        if self.ledger.policies.on_disconnect == "release" and not message.asleep_only:
            numbers = [n for n in leases.holders.take_from(message.subscriber) if n not in leases.leaving]
            self._end_deliveries(numbers, [leases.held[n].token for n in numbers], Reason.DISCONNECT)
        self._settle(self._now_ms())
        if self.is_deserted:
            self._supervisor.tell(Deserted(self.name, self))
