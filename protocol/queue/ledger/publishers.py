"""Publishers: what makes publishes idempotent in one queue: ids, and sessions that number what they publish.

    entry with an id or a session, moment --> known before? else `store` --> results

What became of a publish whose messages may have been stored before (Repeated, Mixed), and which of them are new, is
here too.  Pure, and a part of the ledger: changed only by committed entries, alike on every node.  It never stores a
message itself, and forgets by the moments of entries alone.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

import msgspec

from wakeq.protocol.log.entries import Draft, Publish, Result, Results
from wakeq.protocol.uid import maker_of

SESSION_WINDOW = 1024  # numbers behind a session's highest whose uids are still known

Store = Callable[[Publish, int], Results]  # stores an entry, whatever its id, at a moment


class Limits(msgspec.Struct, frozen=True):
    """What bounds the memory of repeated publishes; the same on every node."""

    dedup_ids_max: int = 1_000_000  # ids of a queue, and sessions of a queue
    dedup_window_ms: int = 15 * 60 * 1000


class Session(msgspec.Struct):
    """A publisher that numbers what it publishes: what its last numbers became."""

    highest: int
    used_ms: int
    outcomes: dict[int, tuple[int, int, int]]  # number in the session -> (queue id, first message number, count)


Once = tuple[int, int, int, int]  # (queue id, first message number, count, moment) of a publish with an id


class Repeated(Sequence[int]):
    """The results of a publish that was stored before, perhaps by an earlier incarnation of the queue."""

    __slots__ = ("numbers", "queue_id")

    def __init__(self, queue_id: int, numbers: range) -> None:
        self.queue_id = queue_id
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self.numbers[index]


class Mixed(list[int]):
    """Results some of which were stored before: positions that are not new, and the queue id of each."""

    def __init__(self) -> None:
        super().__init__()
        self.repeated: dict[int, int] = {}

    def add(self, results: Results) -> None:
        """Take the results of one draft."""
        if isinstance(results, Repeated):
            self.repeated[len(self)] = results.queue_id
        self.extend(results)


class Publishers:
    """The ids and sessions of one queue, the longest unused first."""

    __slots__ = ("_dirty_ids", "_dirty_sessions", "_limits", "_store", "ids", "queue_id", "sessions")

    def __init__(self, limits: Limits, queue_id: int, store: Store) -> None:
        self._limits = limits
        self._store = store
        self.queue_id = queue_id  # of the incarnation that stores what is new
        self.ids: OrderedDict[str, Once] = OrderedDict()
        self.sessions: OrderedDict[str, Session] = OrderedDict()
        self._dirty_ids: set[str] = set()
        self._dirty_sessions: set[str] = set()

    def begin_incarnation(self, queue_id: int) -> None:
        """A new incarnation of the queue begins: everything is written down once more, under its id."""
        self.queue_id = queue_id
        self._dirty_ids.update(self.ids)
        self._dirty_sessions.update(self.sessions)

    def restore(self, ids: Iterable[tuple[str, Once]], sessions: Iterable[tuple[str, Session]]) -> None:
        """Take back what was written down."""
        self.ids.update(ids)
        self.sessions.update(sessions)

    def collect(self) -> tuple[list[tuple[str, Once | None]], list[tuple[str, Session | None]]]:
        """Return the ids and sessions that changed since the last call; None for one that is forgotten."""
        ids = [(key, self.ids.get(key)) for key in self._dirty_ids]
        sessions = [(key, _copied(self.sessions.get(key))) for key in self._dirty_sessions]
        self._dirty_ids, self._dirty_sessions = set(), set()
        return ids, sessions

    def publish(self, entry: Publish, at_ms: int) -> Results:
        """Return what the entry became the first time that it was seen, which may be now."""
        self._forget(at_ms)
        if entry.id:
            return self._publish_by_id(entry, at_ms)
        return self._publish_in_session(entry, at_ms)

    def _publish_by_id(self, entry: Publish, at_ms: int) -> Results:
        known = self.ids.get(entry.id)
        if known is not None:
            return Repeated(known[0], range(known[1], known[1] + known[2]))
        if len(self.ids) >= self._limits.dedup_ids_max:
            return [Result.BUSY] * len(entry.drafts)
        results = self._store(entry, at_ms)
        if results[0] > 0:
            self.ids[entry.id] = (self.queue_id, results[0], len(results), at_ms)
            self._dirty_ids.add(entry.id)
        return results

    def _publish_in_session(self, entry: Publish, at_ms: int) -> Results:
        session = self.sessions.get(entry.session)
        if session is None:
            if len(self.sessions) >= self._limits.dedup_ids_max:
                return [Result.BUSY] * len(entry.drafts)
            session = Session(0, at_ms, {})
        ordinals = entry.ordinals
        if len(ordinals) == 1:
            results = self._publish_ordinal(session, entry, ordinals[0], at_ms)
        elif _are_new(session, ordinals):
            results = self._store(entry, at_ms)
            session.outcomes.update(
                (ordinal, (self.queue_id, number, 1))
                for ordinal, number in zip(ordinals, results, strict=True)
                if number > 0
            )
        else:
            results = self._publish_one_by_one(session, entry, at_ms)
        self._keep_session(entry.session, session, max(ordinals), at_ms)
        return results

    def _publish_one_by_one(self, session: Session, entry: Publish, at_ms: int) -> Mixed:
        results = Mixed()
        for ordinal, draft in zip(entry.ordinals, entry.drafts, strict=True):
            one = msgspec.structs.replace(entry, drafts=[draft], ordinals=[ordinal])
            results.add(self._publish_ordinal(session, one, ordinal, at_ms))
        return results

    def _publish_ordinal(self, session: Session, entry: Publish, ordinal: int, at_ms: int) -> Results:
        known = session.outcomes.get(ordinal)
        if known is not None:
            count = known[2] if entry.atomic else 1  # one answer for each draft that stands for itself
            return Repeated(known[0], range(known[1], known[1] + count))
        if ordinal <= session.highest - SESSION_WINDOW:
            return [Result.FORGOTTEN] * len(entry.drafts)
        results = self._store(entry, at_ms)
        if results[0] > 0:
            session.outcomes[ordinal] = (self.queue_id, results[0], len(results))
        return results

    def _keep_session(self, name: str, session: Session, highest: int, at_ms: int) -> None:
        session.highest = max(session.highest, highest)
        session.used_ms = at_ms
        if len(session.outcomes) > 2 * SESSION_WINDOW:
            oldest = session.highest - SESSION_WINDOW
            session.outcomes = {n: outcome for n, outcome in session.outcomes.items() if n > oldest}
        self.sessions[name] = session
        self.sessions.move_to_end(name)
        self._dirty_sessions.add(name)

    def _forget(self, at_ms: int) -> None:
        """Drop ids and sessions whose time is over; the entry's moment decides, so every node forgets alike."""
        oldest = at_ms - self._limits.dedup_window_ms
        while self.ids and next(iter(self.ids.values()))[3] <= oldest:
            self._dirty_ids.add(self.ids.popitem(last=False)[0])
        while self.sessions and next(iter(self.sessions.values())).used_ms <= oldest:
            self._dirty_sessions.add(self.sessions.popitem(last=False)[0])


def new_numbers(results: Results) -> list[int] | range:
    """Return the numbers that an entry really added."""
    if isinstance(results, range):
        return results
    if isinstance(results, Repeated):
        return []
    if isinstance(results, Mixed):
        return [n for i, n in enumerate(results) if n > 0 and i not in results.repeated]
    return [number for number in results if number > 0]


def new_drafts(results: Results, drafts: Sequence[Draft]) -> Sequence[Draft]:
    """Return the drafts that an entry really added, in the order of `new_numbers`."""
    if isinstance(results, range):
        return drafts
    if isinstance(results, Repeated):
        return []
    repeated = results.repeated if isinstance(results, Mixed) else {}
    rows = enumerate(zip(results, drafts, strict=True))
    return [draft for i, (number, draft) in rows if number > 0 and i not in repeated]


def unchanged(results: Results, drafts: int) -> list[tuple[int, int]]:
    """Return place and code of each draft that was refused, or stored before (then perhaps with fewer beside it)."""
    if isinstance(results, Repeated):
        return [(place, int(Result.REPEATED)) for place in range(drafts)]
    repeated = results.repeated if isinstance(results, Mixed) else {}
    codes = ((place, int(Result.REPEATED) if place in repeated else code) for place, code in enumerate(results))
    return [(place, code) for place, code in codes if code < 0]


def published_uids(queue_id: int, results: Results) -> list[str]:
    """Return the uid of each message that was published; "" for one that was not."""
    maker = maker_of(queue_id)
    if isinstance(results, range):
        return maker.uids(results)
    uids = [maker.uid(number) if number > 0 else "" for number in results]
    if isinstance(results, Mixed):  # some were published before, perhaps into an earlier incarnation
        for place, repeated_id in results.repeated.items():
            uids[place] = maker_of(repeated_id).uid(results[place])
    return uids


def _are_new(session: Session, ordinals: Sequence[int]) -> bool:
    """Whether numbers of a session can be stored without looking at each: all different, unknown, not forgotten."""
    return (
        len(set(ordinals)) == len(ordinals)
        and session.outcomes.keys().isdisjoint(ordinals)  # walks the few, not the thousands
        and min(ordinals) > session.highest - SESSION_WINDOW
    )


def _copied(session: Session | None) -> Session | None:
    """Return a session as it is now: a cut must not show what came after it."""
    return session and Session(session.highest, session.used_ms, session.outcomes.copy())
