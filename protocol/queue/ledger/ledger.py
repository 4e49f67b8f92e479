"""Ledger: the rules of one queue: which messages it has, and what an entry of the log does to them.

    entry, moment --> publish, deliver, acknowledge ... --> a result for each item; `collect`: what has changed since

Pure: only committed entries change it, so it is the same on every node.  What was published is kept in Columns, what is
or was with a worker in Deliveries; here messages come and go.  Where a message comes or goes by itself, the ledger
works on the lists of these two directly.  Bodies are not kept here.  A refusal changes nothing.  After an exception the
ledger is not used any more: its queue process ends, and is made again from the state store and the log.
"""

from collections.abc import Sequence
from functools import partial

import msgspec

from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import (
    ANY_TOKEN,
    Ack,
    Claim,
    Delivered,
    Draft,
    Expired,
    Extended,
    Publish,
    Released,
    Requeued,
    Result,
    Results,
    Stash,
    Unstash,
)
from wakeq.protocol.log.rows import DeliveryRecord
from wakeq.protocol.queue.empty import EMPTY_SET
from wakeq.protocol.queue.ledger.chunks import CHUNK, CHUNK_SHIFT, MASK, Chunk
from wakeq.protocol.queue.ledger.columns import Columns
from wakeq.protocol.queue.ledger.deliveries import Deliveries
from wakeq.protocol.queue.ledger.publishers import Limits, Once, Publishers, Session
from wakeq.protocol.queue.ledger.staging import UNENDING_MS, Name, Staging, Unstashed
from wakeq.protocol.queue.order.fifo import is_run
from wakeq.protocol.queue.steps import STEP_MESSAGES, Steps, slices
from wakeq.protocol.uid import parse

_UNKNOWN, _STALE = int(Result.UNKNOWN), int(Result.STALE)
_NO_LIMIT = 1 << 62


class Totals(msgspec.Struct, gc=False):
    """What ever happened in this incarnation."""

    published: int = 0
    delivered: int = 0
    acked: int = 0
    released: int = 0
    expired: int = 0
    dead: int = 0
    moved: int = 0  # by an operator, to another queue or for ever


class Delta(msgspec.Struct, frozen=True, gc=False):
    """What changed in a ledger since it was last collected; the state store writes it down."""

    touched: Sequence[int] = ()  # living numbers whose DeliveryRecord changed
    chunks: Sequence[tuple[int, Chunk | None, Sequence[int]]] = ()  # id, columns (None: gone), offsets with a record
    ids: Sequence[tuple[str, Once | None]] = ()
    sessions: Sequence[tuple[str, Session | None]] = ()
    staged: Sequence[tuple[tuple[str, str], bytes | None]] = ()  # kind and name -> what it is (None: gone)
    aliases_gone: Sequence[str] = ()  # uids of imported messages that are gone, of dead incarnations too


class Ledger:
    """One incarnation of one queue."""

    __slots__ = (
        "_aliases_lost",
        "_is_limited",
        "cancelled",
        "columns",
        "deliveries",
        "id",
        "limits",
        "name",
        "paused_until_ms",
        "policies",
        "publishers",
        "staging",
        "sums",
        "totals",
    )

    def __init__(
        self, name: str, queue_id: int, policies: Policies, limits: Limits, sums: Totals | None = None
    ) -> None:
        self.name = name
        self.id = queue_id  # of this incarnation: the index of the entry that began it; 0: there is no queue
        self.policies = policies
        self._is_limited = not policies.unlimited  # whether a publish has to be judged
        self.limits = limits  # of what is remembered of repeated publishes
        self.paused_until_ms = 0  # it survives a purge, but not the deletion of the queue
        self.totals = Totals()
        self.sums = sums or Totals()  # of all queues of the node; they outlive an incarnation
        self.columns = Columns()  # what was published
        self.deliveries = Deliveries()  # what is or was leased
        self.publishers: Publishers | None = None  # made by the first id or session: most queues never see one
        self.staging: Staging | None = None  # made when needed: an idle queue is to be small
        self.cancelled: Sequence[int] = ()  # places in the last Ack of messages that were never delivered
        self._aliases_lost: tuple[str, ...] = ()  # of dead incarnations: uids that the store cannot find by prefix

    def begin(self, queue_id: int, policies: Policies) -> None:
        """Start an empty incarnation; ids and sessions of publishers are kept."""
        self._aliases_lost += tuple(self.columns.aliased.values())
        self.columns, self.deliveries, self.totals = Columns(), Deliveries(), Totals()
        self.id = queue_id
        self.set_policies(policies)
        self.staging = None
        if self.publishers is not None:
            self.publishers.begin_incarnation(queue_id)

    def set_policies(self, policies: Policies) -> None:
        """Use these policies from now on."""
        self.policies = policies
        self._is_limited = not policies.unlimited

    def forget_publishers(self) -> None:
        """Forget ids and sessions: the queue itself is deleted."""
        self.publishers = None

    # --- looking ---------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Messages that are ready or delayed: what the size policy counts."""
        return self.columns.living - self.deliveries.leased

    def timeout_of(self, number: int) -> int:
        """Return the timeout of a living message: its own, or the queue's."""
        return self.columns.own_timeout_of(number) or self.policies.timeout * 1000

    def due_of(self, number: int) -> int:
        """Return the moment from which a living message that is not leased may be delivered; 0 for always."""
        record = self.deliveries.records.get(number)
        if record is not None:
            return record.due_ms
        column = self.columns.chunks[number >> CHUNK_SHIFT].dues
        due_ms = 0 if column is None else column[number & MASK]
        return due_ms if due_ms >= 0 else UNENDING_MS  # stashed

    def is_plain(self, number: int) -> bool:
        """Whether a living message has no priority, delay or expiry and was never delivered."""
        chunk = self.columns.chunks[number >> CHUNK_SHIFT]
        if chunk.priorities is None and chunk.dues is None and chunk.expiries is None:
            return number not in self.deliveries.records
        return False

    def is_removable(self, number: int) -> bool:
        """Whether a message may be moved, deleted or expired: it is neither leased nor stashed."""
        columns = self.columns
        return columns.lives(number) and not self.deliveries.is_leased(number) and not columns.is_hidden(number)

    # --- publishing ------------------------------------------------------------------------------------------------

    def publish(self, entry: Publish, at_ms: int, *, is_new: bool = False) -> Results:
        """Return a message number, or a refusal, for each draft.

        What has an id or a session goes through Publishers; they come back, with `is_new`, with what they do not know.
        """
        if (entry.id or entry.session) and not is_new:
            if self.publishers is None:
                self._make_publishers()
            assert self.publishers is not None, "just made"
            return self.publishers.publish(entry, at_ms)
        drafts, columns = entry.drafts, self.columns
        if entry.oversized:
            return [code or int(Result.TOO_LARGE) for code in self._refusals(drafts)]
        if self._is_limited and not entry.forced:
            refusals = self._refusals(drafts)
            if any(refusals):
                if entry.atomic or entry.id:
                    worst = next(code for code in refusals if code)
                    return [worst] * len(drafts)
                return self._publish_accepted(drafts, refusals, at_ms)
        first, count = columns.next_number, len(drafts)
        chunk = columns.chunks.get(first >> CHUNK_SHIFT)
        draft = drafts[0] if count == 1 and chunk is not None and chunk.only_sizes else None
        if draft is None or draft.priority or draft.delay_ms or draft.expires_ms or draft.timeout_ms or draft.alias:
            columns.append(drafts, at_ms, alike=entry.alike)
        else:
            # The hot path of one message that has nothing but a size: as in Columns.append().
            assert chunk is not None, "just found"
            size = len(draft.body) + len(draft.headers)
            chunk.sizes.append(size + 1)
            chunk.living += 1
            columns.next_number = first + 1
            columns.bytes += size
            columns.living += 1
            columns.dirty_chunks[first >> CHUNK_SHIFT] = None
        self.totals.published += count
        self.sums.published += count
        return range(first, first + count)

    def publish_in_steps(self, entry: Publish, at_ms: int) -> Steps[Results]:
        """Do the same in steps, as far as nothing but the columns has to know of the messages."""
        drafts, columns = entry.drafts, self.columns
        is_judged = (self._is_limited and not entry.forced) or entry.oversized
        if len(drafts) <= STEP_MESSAGES or entry.id or entry.session or is_judged:
            return self.publish(entry, at_ms)
        first = columns.next_number
        for among in slices(len(drafts)):
            if among.start:
                yield
            columns.append(drafts, at_ms, alike=entry.alike, among=among)
        self.totals.published += len(drafts)
        self.sums.published += len(drafts)
        return range(first, first + len(drafts))

    def _make_publishers(self) -> None:
        self.publishers = Publishers(self.limits, self.id, partial(self.publish, is_new=True))

    def _publish_accepted(self, drafts: Sequence[Draft], refusals: list[int], at_ms: int) -> list[int]:
        number = self.columns.next_number
        accepted = [draft for draft, code in zip(drafts, refusals, strict=True) if not code]
        self.columns.append(accepted, at_ms)
        self.totals.published += len(accepted)
        self.sums.published += len(accepted)
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
        """Return 0 or the refusal for each draft, each counting those accepted before it.

        The order when several limits are passed is that of the TaskFlux specification 6.1: size, range, payload.
        """
        policies, columns = self.policies, self.columns
        room = _NO_LIMIT if policies.max_size is None else policies.max_size - self.size
        room_bytes = _NO_LIMIT if policies.max_bytes is None else policies.max_bytes - columns.bytes
        codes = []
        for draft in drafts:
            body_bytes = len(draft.body)
            needed_bytes = body_bytes + len(draft.headers)
            if room < 1 or room_bytes < needed_bytes:
                code = Result.QUEUE_FULL
            elif (policies.priority_min is not None and draft.priority < policies.priority_min) or (
                policies.priority_max is not None and draft.priority > policies.priority_max
            ):
                code = Result.KEY_RANGE
            elif policies.max_message_size is not None and body_bytes > policies.max_message_size:
                code = Result.TOO_LARGE
            else:
                code = Result.DONE
                room -= 1
                room_bytes -= needed_bytes
            codes.append(int(code))
        return codes

    # --- deliveries ------------------------------------------------------------------------------------------------

    def deliver(self, entry: Delivered, term: int) -> Results:
        """Note that messages are leased; the result of one that is gone is UNKNOWN."""
        if entry.queue_id != self.id:
            return [_UNKNOWN] * len(entry.numbers)
        columns, deliveries = self.columns, self.deliveries
        if deliveries.touched is EMPTY_SET:
            deliveries.begin_to_write()
        records, chunks, dirty_chunks = deliveries.records, columns.chunks, columns.dirty_chunks
        results: list[int] = []
        leased = delivered = 0
        sequence = entry.first_sequence - 1
        for number, until_ms in zip(entry.numbers, entry.untils_ms, strict=True):
            sequence += 1
            chunk_id, offset = number >> CHUNK_SHIFT, number & MASK
            chunk = chunks.get(chunk_id)
            if chunk is None or number < 1 or offset >= len(chunk.sizes) or not chunk.sizes[offset]:
                results.append(_UNKNOWN)
                continue
            record = records.get(number)
            if record is None:
                records[number] = DeliveryRecord(1, 0, 0, 0, term, sequence, until_ms, 0, "")
                leased += 1
            else:
                leased += record.until_ms == 0
                record.deliveries += 1
                record.term, record.sequence, record.until_ms, record.due_ms = term, sequence, until_ms, 0
            dirty_chunks[chunk_id] = None
            delivered += 1
            results.append(number)
        deliveries.leased += leased
        deliveries.touched.update(entry.numbers)
        self.totals.delivered += delivered
        self.sums.delivered += delivered
        return results

    def extend(self, entry: Extended) -> Results:
        """Give leases a later end; UNKNOWN for a message that is not leased."""
        if entry.queue_id != self.id:
            return [_UNKNOWN] * len(entry.numbers)
        rows = zip(entry.numbers, entry.untils_ms, strict=True)
        return [number if self.deliveries.extend(number, until_ms) else _UNKNOWN for number, until_ms in rows]

    def release(self, entry: Released) -> Results:
        """End leases; STALE for a token older than the last delivery, UNKNOWN for a message that is not leased."""
        if entry.queue_id != self.id:
            return [Result.UNKNOWN] * len(entry.numbers)
        results = []
        published = () if self.staging is None else self.staging.published_epochs()
        for number, due_ms, token in zip(entry.numbers, entry.dues_ms, entry.tokens, strict=True):
            if published and self._is_published(number):  # it must not come back
                results.append(int(Result.UNKNOWN))
                continue
            code = self.deliveries.release(number, due_ms, token, entry.reason, entry.error)
            self.totals.released += code == Result.DONE
            results.append(code)
        return results

    # --- ends ------------------------------------------------------------------------------------------------------

    def judge_ack(self, entry: Ack) -> int:
        """Return 0 if every message of the entry could be removed, else the first refusal."""
        for number, token in zip(self._own_numbers(entry), entry.tokens, strict=True):
            if not self.columns.lives(number) or self.columns.is_hidden(number):
                return Result.UNKNOWN
            record = self.deliveries.records.get(number)
            if record is not None and token != ANY_TOKEN and token < (record.term, record.sequence):
                return Result.STALE
            # It was released meanwhile, so this delivery is not its last.
            if entry.dead and not self.deliveries.is_leased(number):
                return Result.UNKNOWN
            if entry.dead and self._is_published(number):
                return Result.UNKNOWN
            if entry.moved and not self.is_removable(number):  # it was delivered meanwhile
                return Result.UNKNOWN
        return 0

    def _is_published(self, number: int) -> bool:
        """Whether what came of a claimed message is published."""
        record = self.deliveries.records.get(number)
        return (
            self.staging is not None
            and record is not None
            and self.staging.is_published((record.term, record.sequence))
        )

    def resolved(self, entry: Ack) -> list[int]:
        """Return the entry's numbers, with those of foreign uids looked up, also of messages that have just gone."""
        foreign = entry.foreign
        if not foreign:
            return entry.numbers
        return [self._number_of(foreign[i]) if i in foreign else n for i, n in enumerate(entry.numbers)]

    def _number_of(self, uid: str) -> int:
        """Return the number of an imported uid, or of one of this incarnation; -1 for any other."""
        number = self.columns.aliases.get(uid)
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

    def acknowledge(self, entry: Ack) -> Results:
        """Remove messages; the result of each is DONE, UNKNOWN or STALE.  The hot path of the end of a message."""
        self.cancelled = ()
        if entry.moved:
            return self._move(entry)
        is_ours = entry.queue_id == self.id and not entry.foreign
        numbers = entry.numbers if is_ours else self._own_numbers(entry)
        columns, deliveries = self.columns, self.deliveries
        chunks, records, aliased = columns.chunks, deliveries.records, columns.aliased
        any_token = ANY_TOKEN
        results: list[int] = []
        cancelled: list[int] = []
        is_removed = entry.delivered and self._remove_run(numbers)
        if is_removed:
            results = [0] * len(numbers)
        for number, token in () if is_removed else zip(numbers, entry.tokens, strict=True):
            chunk_id, offset = number >> CHUNK_SHIFT, number & MASK
            chunk = chunks.get(chunk_id)
            if chunk is None or number < 1 or offset >= len(chunk.sizes) or not chunk.sizes[offset]:
                results.append(_UNKNOWN)
                continue
            record = records.get(number)
            if record is None:
                if chunk.dues is not None and chunk.dues[offset] < 0:  # stashed, so not published yet
                    results.append(_UNKNOWN)
                    continue
                if token == any_token:
                    cancelled.append(len(results))
            elif token is not any_token and any_token != token < (record.term, record.sequence):
                results.append(_STALE)
                continue
            else:
                del records[number]
                deliveries.leased -= record.until_ms > 0
            # As in Columns.remove().
            size = chunk.sizes[offset] - 1
            chunk.sizes[offset] = 0
            chunk.living -= 1
            columns.bytes -= size
            columns.living -= 1
            columns.dirty_chunks[chunk_id] = None
            if not chunk.living and len(chunk.sizes) == CHUNK:
                del chunks[chunk_id]
            if aliased and number in aliased:
                columns.forget_alias(number)
            results.append(0)
        done = results.count(0)
        if entry.dead:
            self.totals.dead += done
        else:
            self.totals.acked += done
            self.sums.acked += done
        if entry.delivered:  # this very entry has delivered them
            self.totals.delivered += done
            self.sums.delivered += done
        elif cancelled:
            self.cancelled = cancelled
        return results

    def _remove_run(self, numbers: list[int]) -> bool:
        """Remove messages in a row that were never delivered; False, and nothing is done, if they are anything else."""
        if not numbers or not is_run(numbers):
            return False
        if self.columns.aliased or not self.deliveries.records.keys().isdisjoint(numbers):
            return False
        return self.columns.remove_run(range(numbers[0], numbers[-1] + 1))

    def _move(self, entry: Ack) -> Results:
        """Remove what an operator takes away, except leased messages."""
        results: list[int] = []
        for number in self._own_numbers(entry):
            if not self.is_removable(number):
                results.append(_UNKNOWN)
            else:
                self._remove(number)
                results.append(0)
        self.totals.moved += results.count(0)
        return results

    def requeue(self, entry: Requeued) -> Results:
        """Make delayed messages ready; UNKNOWN for those that are gone or leased."""
        is_ours = entry.queue_id == self.id
        return [self._requeue(number) if is_ours else Result.UNKNOWN for number in entry.numbers]

    def _requeue(self, number: int) -> int:
        if not self.is_removable(number):
            return Result.UNKNOWN
        record, chunk = self.deliveries.records.get(number), self.columns.chunks[number >> CHUNK_SHIFT]
        if record is not None:
            record.due_ms = 0
            self.deliveries.touch(number)
        if chunk.dues is not None:
            chunk.dues[number & MASK] = 0
        self.columns.dirty_chunks[number >> CHUNK_SHIFT] = None
        return Result.DONE

    def expire(self, entry: Expired, at_ms: int) -> Results:
        """Remove messages that have expired and are neither leased nor stashed."""
        results: list[int] = []
        for number in entry.numbers:
            gone = entry.queue_id != self.id or not self.is_removable(number)
            if gone or not 0 < self.columns.expires_of(number) <= at_ms:
                results.append(Result.UNKNOWN)
            else:
                self._remove(number)
                self.totals.expired += 1
                results.append(Result.DONE)
        return results

    def _remove(self, number: int) -> None:
        """Take out a living message, and everything that is known of it."""
        self.deliveries.forget(number)
        self.columns.remove(number)

    # --- what is staged --------------------------------------------------------------------------------------------

    def claim(self, entry: Claim, term: int, at_ms: int) -> Steps[Results]:
        """Stage, renew, settle or end claims; see Staging."""
        return self._staged().claim(entry, term, at_ms)

    def stash(self, entry: Stash, at_ms: int) -> Steps[Results]:
        """Store messages that are hidden until they are published; see Staging."""
        return self._staged().stash(entry, at_ms)

    def unstash(self, entry: Unstash, at_ms: int) -> Steps[Unstashed]:
        """Publish or drop stashes; see Staging."""
        return self._staged().unstash(entry, at_ms)

    def judge_publish(self, entry: Unstash, at_ms: int) -> int:
        """Return whether an epoch would be published, see Staging."""
        return self._staged().judge_publish(entry, at_ms)

    def judge_published(self, reader: str, batch: int, run: str) -> int:
        """Return whether what a reader made of its messages may be published; see Staging."""
        return self._staged().judge_published(reader, batch, run)

    def discard(self, numbers: range) -> None:
        """Remove stashed messages that will not be published."""
        for number in numbers:
            if self.columns.lives(number):
                self._remove(number)
                self.totals.published -= 1

    def _staged(self) -> Staging:
        if self.staging is None:
            self.staging = Staging(self)
        return self.staging

    # --- to the state store and back -------------------------------------------------------------------------------

    def collect(self) -> Delta:
        """Return what changed since the last call.  Columns are copied, because the ledger goes on changing them."""
        columns, aliases_lost = self.columns, self._aliases_lost
        ids, sessions = self.publishers.collect() if self.publishers is not None else ((), ())
        self._aliases_lost = ()
        aliases_gone = columns.collect_aliases() if columns.aliased else []
        return Delta(
            self.deliveries.collect(),
            columns.collect_chunks(self.deliveries.records) if columns.dirty_chunks else (),
            ids,
            sessions,
            self.staging.collect() if self.staging is not None else (),
            [*aliases_gone, *aliases_lost] if aliases_gone or aliases_lost else (),
        )

    def restore_publishers(self, ids: list[tuple[str, Once]], sessions: list[tuple[str, Session]]) -> None:
        """Take back what makes publishes idempotent."""
        if ids or sessions:
            self._make_publishers()
            assert self.publishers is not None, "just made"
            self.publishers.restore(ids, sessions)

    def restore_staging(self, rows: list[tuple[Name, bytes]]) -> None:
        """Take back what was staged."""
        if rows:
            self._staged().restore(rows)
