"""Ledger: the rules of one queue: which messages it has, and what an entry of the log does to them.

    entry, moment --> publish, deliver, acknowledge ... --> a result for each item; `collect`: what has changed since

Pure: only committed entries change it, so it is the same on every node.  It is built in layers: Columns keeps what was
published, Deliveries what is or was out with a worker, and here messages come and go.  Bodies are not kept here.  Every
method computes first and changes last, so that an exception leaves the ledger as it was.
"""

from collections.abc import Sequence

from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import (
    ANY_TOKEN,
    Ack,
    Claim,
    Draft,
    Expired,
    Publish,
    Requeued,
    Result,
    Results,
    Stash,
    Token,
    Unstash,
)
from wakeq.protocol.log.rows import Side
from wakeq.protocol.queue.empty import EMPTY_DICT
from wakeq.protocol.queue.ledger.acceptance import refusals_of
from wakeq.protocol.queue.ledger.chunks import CHUNK_SHIFT, Chunk
from wakeq.protocol.queue.ledger.columns import MASK
from wakeq.protocol.queue.ledger.deliveries import Deliveries
from wakeq.protocol.queue.ledger.delta import Delta
from wakeq.protocol.queue.ledger.publishers import Limits, Once, Publishers, Session
from wakeq.protocol.queue.ledger.staging import Name, Staging
from wakeq.protocol.queue.order.fifo import is_run
from wakeq.protocol.uid import parse

_UNKNOWN, _STALE = int(Result.UNKNOWN), int(Result.STALE)


class Ledger(Deliveries):
    """One incarnation of one queue."""

    __slots__ = (
        "_aliases_gone",
        "_aliases_lost",
        "_is_limited",
        "cancelled",
        "limits",
        "name",
        "paused_until_ms",
        "publishers",
        "staging",
    )

    def __init__(self, name: str, queue_id: int, policies: Policies, limits: Limits) -> None:
        self.name = name
        self.limits = limits
        self.paused_until_ms = 0  # it survives a purge, but not the deletion of the queue
        self.publishers: Publishers | None = None  # made by the first id or session: most queues never see one
        self._aliases_lost: tuple[str, ...] = ()  # of dead incarnations: uids that the store cannot find by prefix
        self.aliased = EMPTY_DICT
        self.cancelled: Sequence[int] = ()  # places in the last Ack of messages that had never been out
        self.begin(queue_id, policies)

    def begin(self, queue_id: int, policies: Policies) -> None:
        """Start an empty incarnation; ids and sessions of publishers are kept."""
        self._aliases_lost += tuple(self.aliased.values())
        self.clear()
        self.id = queue_id
        self.obey(policies)
        self._aliases_gone: list[int] | None = None  # they stay in the maps of aliases until they are collected
        self.staging: Staging | None = None  # made when needed: an idle queue is to be small
        if self.publishers is not None:
            self.publishers.go_on_in(queue_id)

    def obey(self, policies: Policies) -> None:
        """Go by these policies from now on."""
        self.policies = policies
        self._is_limited = not policies.unlimited

    def forget_publishers(self) -> None:
        """Forget ids and sessions: the queue itself is deleted."""
        self.publishers = None

    @property
    def size(self) -> int:
        """Messages that are ready or delayed: what the size policy counts."""
        return self.living - self.out

    # --- publishing ------------------------------------------------------------------------------------------------

    def publish(self, entry: Publish, at_ms: int) -> Results:
        """Return a message number, or a refusal, for each draft."""
        if entry.id or entry.session:
            if self.publishers is None:
                self.publishers = Publishers(self.limits, self.id, self._publish)
            return self.publishers.publish(entry, at_ms)
        return self._publish(entry, at_ms)

    def _publish(self, entry: Publish, at_ms: int) -> Results:
        drafts = entry.drafts
        if entry.oversized:
            return [code or int(Result.TOO_LARGE) for code in self._refusals(drafts)]
        if self._is_limited and not entry.forced:
            refusals = self._refusals(drafts)
            if any(refusals):
                if entry.atomic or entry.id:
                    worst = next(code for code in refusals if code)
                    return [worst] * len(drafts)
                return self._publish_accepted(drafts, refusals, at_ms)
        first = self.next_number
        if len(drafts) > 1 or not self._append_one(drafts[0]):
            self._append(drafts, at_ms, alike=entry.alike)
        self.totals.published += len(drafts)
        return range(first, self.next_number)

    def _publish_accepted(self, drafts: Sequence[Draft], refusals: list[int], at_ms: int) -> list[int]:
        number = self.next_number
        accepted = [draft for draft, code in zip(drafts, refusals, strict=True) if not code]
        self._append(accepted, at_ms)
        self.totals.published += len(accepted)
        results = []
        for code in refusals:
            results.append(code or number)
            number += not code
        return results

    def judge(self, entry: Publish) -> int:
        """Return 0 if the whole entry, a follow-up without id or session, would be stored, else the first refusal."""
        if entry.forced or not self._is_limited:
            return 0
        return next((code for code in self._refusals(entry.drafts) if code), 0)

    def _refusals(self, drafts: Sequence[Draft]) -> list[int]:
        return refusals_of(self.policies, drafts, size=self.size, held_bytes=self.bytes)

    # --- ends ------------------------------------------------------------------------------------------------------

    def judge_ack(self, entry: Ack) -> int:
        """Return 0 if every message of the entry could be removed, else the first refusal."""
        for number, token in zip(self._own_numbers(entry), entry.tokens, strict=True):
            code = self._ack_code(number, token)
            if code:
                return code
            if entry.dead and not self.is_out(number):  # it came back meanwhile, so this delivery is not its last
                return Result.UNKNOWN
            if entry.moved and not self.may_be_operated(number):  # a worker has got it meanwhile
                return Result.UNKNOWN
        return 0

    def resolved(self, entry: Ack) -> list[int]:
        """Return the entry's numbers, with those of foreign uids looked up, also of messages that have just gone."""
        foreign = entry.foreign
        if not foreign:
            return entry.numbers
        return [self._number_of(foreign[i]) if i in foreign else n for i, n in enumerate(entry.numbers)]

    def _number_of(self, uid: str) -> int:
        """Return the number of an imported uid, or of one of this incarnation; -1 for any other."""
        number = self.aliases.get(uid)
        if number is not None:
            return number
        parsed = parse(uid)
        return parsed[1] if parsed is not None and parsed[0] == self.id else -1

    def _own_numbers(self, entry: Ack) -> list[int]:
        """Return the entry's numbers, -1 for each that belongs to another incarnation or queue."""
        numbers = self.resolved(entry)
        if entry.queue_id == self.id:
            return numbers
        return [n if i in entry.foreign else -1 for i, n in enumerate(numbers)]

    def _ack_code(self, number: int, token: tuple[int, int]) -> int:
        if not self.lives(number) or self.is_hidden(number):
            return Result.UNKNOWN
        if token != ANY_TOKEN:
            side = self.sides.get(number)
            if side is not None and token < (side.term, side.sequence):
                return Result.STALE
        return Result.DONE

    def acknowledge(self, entry: Ack) -> Results:
        """Remove messages; the result of each is DONE, UNKNOWN or STALE.  The hot path of the end of a message."""
        self.cancelled = ()
        if entry.moved:
            return self._move(entry)
        numbers = self._own_numbers(entry)
        if entry.delivered and self._remove_run(numbers):
            results = [0] * len(numbers)
        else:
            results = self._remove_acknowledged(numbers, entry.tokens)
        done = results.count(0)
        if entry.dead:
            self.totals.dead += done
        else:
            self.totals.acked += done
        if entry.delivered:
            self.totals.delivered += done
            self.cancelled = ()  # this very entry has delivered them
        return results

    def _remove_run(self, numbers: list[int]) -> bool:
        """Remove messages in a row that were never out; False, and nothing is done, if they are anything else."""
        is_plain = bool(numbers) and is_run(numbers) and not self.aliased and self.sides.keys().isdisjoint(numbers)
        return is_plain and self._cross_out_run(range(numbers[0], numbers[-1] + 1))

    def _remove_acknowledged(self, numbers: list[int], tokens: list[Token]) -> list[int]:
        chunks, sides, any_token = self.chunks, self.sides, ANY_TOKEN
        results: list[int] = []
        cancelled: list[int] = []
        for number, token in zip(numbers, tokens, strict=True):
            chunk = chunks.get(number >> CHUNK_SHIFT)
            offset = number & MASK
            if chunk is None or number < 1 or offset >= len(chunk.sizes) or not chunk.sizes[offset]:
                results.append(_UNKNOWN)
                continue
            side = sides.get(number)
            if side is None:
                if chunk.dues is not None and chunk.dues[offset] < 0:  # stashed, so not published yet
                    results.append(_UNKNOWN)
                    continue
                if token == any_token:
                    cancelled.append(len(results))
            elif token is not any_token and ANY_TOKEN != token < (side.term, side.sequence):
                results.append(_STALE)
                continue
            self._remove_from(chunk, number, side)
            results.append(0)
        self.cancelled = cancelled or ()
        return results

    def _move(self, entry: Ack) -> Results:
        """Remove what an operator takes away, except what is out."""
        results: list[int] = []
        for number in self._own_numbers(entry):
            if not self.may_be_operated(number):
                results.append(_UNKNOWN)
            else:
                self._remove(number)
                results.append(0)
        self.totals.moved += results.count(0)
        return results

    def may_be_operated(self, number: int) -> bool:
        """Whether it may be moved, deleted or expired: it is neither out with a worker nor stashed."""
        return self.lives(number) and not self.is_out(number) and not self.is_hidden(number)

    def requeue(self, entry: Requeued) -> Results:
        """Make delayed messages available; UNKNOWN for what is gone, or out."""
        is_ours = entry.queue_id == self.id
        return [self._requeue(number) if is_ours else Result.UNKNOWN for number in entry.numbers]

    def _requeue(self, number: int) -> int:
        if not self.may_be_operated(number):
            return Result.UNKNOWN
        side, chunk = self.sides.get(number), self.chunks[number >> CHUNK_SHIFT]
        if side is not None:
            side.due_ms = 0
            self._touch((number,))
        if chunk.dues is not None:
            chunk.dues[number & MASK] = 0
        self._dirty_chunks[number >> CHUNK_SHIFT] = None
        return Result.DONE

    def expire(self, entry: Expired, at_ms: int) -> Results:
        """Remove what has expired and is neither out with a worker nor stashed."""
        results: list[int] = []
        for number in entry.numbers:
            gone = entry.queue_id != self.id or not self.may_be_operated(number)
            if gone or not 0 < self.expires_of(number) <= at_ms:
                results.append(Result.UNKNOWN)
            else:
                self._remove(number)
                self.totals.expired += 1
                results.append(Result.DONE)
        return results

    # --- what is staged --------------------------------------------------------------------------------------------

    def claim(self, entry: Claim, term: int, at_ms: int) -> Results:
        """Stage, renew, settle or end claims; see Staging."""
        return self._staged().claim(entry, term, at_ms)

    def stash(self, entry: Stash, at_ms: int) -> Results:
        """Store messages that are hidden until they are published; see Staging."""
        return self._staged().stash(entry, at_ms)

    def unstash(self, entry: Unstash, at_ms: int) -> tuple[Results, list[range]]:
        """Publish or drop stashes; see Staging."""
        return self._staged().unstash(entry, at_ms)

    def discard(self, numbers: range) -> None:
        """Remove stashed messages that will not be published."""
        for number in numbers:
            if self.lives(number):
                self._remove(number)
                self.totals.published -= 1

    def _staged(self) -> Staging:
        if self.staging is None:
            self.staging = Staging(self)
        return self.staging

    def _remove(self, number: int) -> None:
        self._remove_from(self.chunks[number >> CHUNK_SHIFT], number, self.sides.get(number))

    def _remove_from(self, chunk: Chunk, number: int, side: Side | None) -> None:
        """Take a living message out of its chunk, and everything that is known of it."""
        if side is not None:
            del self.sides[number]
            if side.until_ms:
                self.out -= 1
        if self.aliased and number in self.aliased:
            self._aliases_gone = self._aliases_gone or []
            self._aliases_gone.append(number)
        self._cross_out(chunk, number)

    # --- to the state store and back -------------------------------------------------------------------------------

    def collect(self) -> Delta:
        """Return what changed since the last call.  Columns are copied, because the ledger goes on changing them."""
        touched, self._touched = self._touched, None
        dirty = list(self._dirty_chunks)
        self._dirty_chunks.clear()
        ids, sessions = self.publishers.collect() if self.publishers is not None else ((), ())
        return Delta(
            [number for number in touched if number in self.sides] if touched else (),
            [self._collect_chunk(chunk_id) for chunk_id in dirty] if dirty else (),
            ids,
            sessions,
            self.staging.collect() if self.staging is not None else (),
            self._collect_aliases() if self._aliases_gone or self._aliases_lost else (),
        )

    def _collect_aliases(self) -> list[str]:
        """Return the uids of imported messages that are gone, which cannot be looked up from now on."""
        gone = [self.aliased.pop(number) for number in self._aliases_gone or ()]
        for alias in gone:
            self.aliases.pop(alias, None)
        gone += self._aliases_lost
        self._aliases_gone, self._aliases_lost = None, ()
        return gone

    def _collect_chunk(self, chunk_id: int) -> tuple[int, Chunk | None, Sequence[int]]:
        chunk = self.chunks.get(chunk_id)
        if chunk is None or chunk.living == 0:
            return chunk_id, None, ()
        copy = chunk.copied()
        base = chunk_id << CHUNK_SHIFT
        sides = self.sides
        with_side = [i for i in range(len(chunk.sizes)) if base + i in sides] if sides else ()
        return chunk_id, copy, with_side

    def restore_publishers(self, ids: list[tuple[str, Once]], sessions: list[tuple[str, Session]]) -> None:
        """Take back what makes publishes idempotent."""
        if ids or sessions:
            self.publishers = Publishers(self.limits, self.id, self._publish)
            self.publishers.restore(ids, sessions)

    def restore_staging(self, rows: list[tuple[Name, bytes]]) -> None:
        """Take back what was staged."""
        if rows:
            self._staged().restore(rows)
