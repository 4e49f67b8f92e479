"""MessageRoutes: messages in the HTTP API: look, ask why, move, throw away, let go now, redrive; and leases.

What no worker has is moved by the log; what a worker has is only ever given back.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from wakeq.actors.sessions.operator_mail import Page
from wakeq.http.api.api import Route
from wakeq.http.api.queries import Denied, Queries
from wakeq.http.api.queues import Name, QueueQuery
from wakeq.http.api.selection import UIDS_MAX, SelectBody, Selected, Selection, headers_of, moved_in_batches, shown
from wakeq.http.callers import ADMIN, READ, Caller
from wakeq.protocol.catalog import DEAD_SUFFIX, Policies, dead_letter_of
from wakeq.protocol.errors import BadField, BadName
from wakeq.protocol.log.entries import PurgeQueue, Result
from wakeq.protocol.names import check_name
from wakeq.protocol.queue.dead_letters import ORIGIN, ORIGIN_UID
from wakeq.protocol.queue.why import moment
from wakeq.protocol.uid import parse
from wakeq.storage.log.endings import Ending

PEEK_MAX = 1_000
NOT_HERE = {"gone", "no_uid", "other_queue"}  # of a message that may have become a dead letter
LETTERS_MAX = 10_000  # dead letters looked at for the one that a message became
PAGE = 500

Uid = Annotated[str, Meta(min_length=1, max_length=255)]
Count = Annotated[int, Meta(ge=1, le=PEEK_MAX)]


class PeekQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which messages: the first in a state; in state `all` those behind number `after`, page by page."""

    queue: Name
    state: Literal["ready", "delayed", "leased", "any", "all"] = "ready"
    count: Count = 50
    after: Annotated[int, Meta(ge=0)] = 0


class Peeked(msgspec.Struct):
    """Messages, as many as 4 MiB of bodies hold; `after` asks for the next ones of pages, 0 if there are none."""

    messages: list[dict[str, Any]]
    after: int = 0


class LeasesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Of which queue, behind which number: page by page."""

    queue: Name
    after: Annotated[int, Meta(ge=0)] = 0


class UidQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which message."""

    queue: Name
    uid: Uid


class MoveBody(SelectBody, forbid_unknown_fields=True, kw_only=True):
    """Which messages, and where to."""

    to: Name


class RedriveBody(SelectBody, forbid_unknown_fields=True, kw_only=True):
    """Which dead letters; where to, if not each to the queue that it came from.

    Those that name a queue which does not send its dead letters here are left, unless `anywhere` says otherwise.
    """

    to: Name | None = None
    anywhere: bool = False


class ReleaseBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which messages are taken back from their workers."""

    uids: Annotated[list[Uid], Meta(min_length=1, max_length=UIDS_MAX)]


class Released(msgspec.Struct):
    """How many came back."""

    done: int


EndingOf = Callable[[int, int], Awaitable[Ending | None]]  # by the id of a queue and a number in it


def message_routes(queries: Queries, now_ms: Callable[[], int], ending_of: EndingOf) -> Sequence[Route]:
    """Return what can be done with messages."""
    routes = _MessageRoutes(queries, now_ms, ending_of)
    query, picked = QueueQuery, Selected
    return (
        Route("GET", "/messages", "Look at messages", READ, routes.peek, PeekQuery, answer=Peeked),
        Route(
            "GET",
            "/messages/why",
            "Why is this message not being worked on?",
            READ,
            routes.why,
            UidQuery,
            by_caller=True,
        ),
        Route(
            "POST",
            "/messages/move",
            "Move messages to another queue",
            ADMIN,
            routes.move,
            query,
            MoveBody,
            picked,
            by_caller=True,
        ),
        Route("POST", "/messages/purge", "Throw messages away", ADMIN, routes.purge, query, SelectBody, picked),
        Route("POST", "/messages/requeue", "Let delayed ones go now", ADMIN, routes.requeue, query, SelectBody, picked),
        Route(
            "POST",
            "/messages/redrive",
            "Bring dead letters back",
            ADMIN,
            routes.redrive,
            query,
            RedriveBody,
            picked,
            by_caller=True,
        ),
        Route("GET", "/leases", "Look at what workers have", READ, routes.leases, LeasesQuery, answer=Peeked),
        Route("POST", "/leases/release", "Take back from workers", ADMIN, routes.release, query, ReleaseBody, Released),
    )


class _MessageRoutes:
    def __init__(self, queries: Queries, now_ms: Callable[[], int], ending_of: EndingOf) -> None:
        self._queries = queries
        self._ending_of = ending_of
        self._now_ms = now_ms

    # --- looking ---------------------------------------------------------------------------------------------------

    async def peek(self, query: PeekQuery) -> Peeked:
        queue = check_name(query.queue)
        if query.state == "all":
            return _peeked(await self._queries.page(queue, query.after, query.count))
        if query.after:
            raise BadField("after goes with state all")
        return Peeked([shown(row) for row in await self._queries.peek(queue, query.state, query.count)])

    async def leases(self, query: LeasesQuery) -> Peeked:
        return _peeked(await self._queries.page(check_name(query.queue), query.after, PAGE, leased_only=True))

    async def why(self, caller: Caller, query: UidQuery) -> dict[str, Any]:
        """A message that is gone may have become a dead letter: then that one says why."""
        facts = await self._queries.why(check_name(query.queue), query.uid)
        if facts["causes"][0]["code"] in NOT_HERE:
            letter = await self._letter_of(caller, query.queue, query.uid)
            if letter is not None:
                facts["causes"] = [letter]
            elif facts["causes"][0]["code"] == "gone":
                await self._say_how_it_ended(facts["causes"][0], query.uid)
        return facts

    async def _say_how_it_ended(self, cause: dict[str, Any], uid: str) -> None:
        """The newest part of the log may know more of what is finished."""
        parsed = parse(uid)
        ending = None if parsed is None else await self._ending_of(*parsed)
        if ending is not None:
            cause |= {"text": f"it {ending.how} at {moment(ending.at_ms)}", "at_ms": ending.at_ms}

    async def _letter_of(self, caller: Caller, queue: str, uid: str) -> dict[str, Any] | None:
        stats = await self._queries.stats(queue)
        dead = dead_letter_of(queue, msgspec.convert(stats["policies"], Policies))
        if not caller.may(READ, dead):
            return None
        after = scanned = 0
        while scanned < LETTERS_MAX:
            try:
                page = await self._queries.page(dead, after, PAGE)
            except Denied:  # there never was a dead letter
                return None
            for row in page.rows:
                headers = headers_of(row)
                if headers.get(ORIGIN_UID) == uid and headers.get(ORIGIN) == queue:
                    return _as_cause(dead, row["uid"], headers)
            if not page.rows:
                return None
            after, scanned = page.after, scanned + len(page.rows)
        return None

    # --- changing --------------------------------------------------------------------------------------------------

    async def move(self, caller: Caller, query: QueueQuery, body: MoveBody) -> Selected:
        queue, to = check_name(query.queue), check_name(body.to)
        caller.require(ADMIN, to)
        if queue == to:
            raise BadField("the messages are in that queue already; give another one")

        async def do(rows: list[dict[str, Any]]) -> int:
            return await moved_in_batches(self._queries, queue, rows, to)

        return await self._select(queue, body, do)

    async def purge(self, query: QueueQuery, body: SelectBody) -> Selected:
        """Throw away what fits; without any condition the whole queue at once, also what workers have."""
        queue = check_name(query.queue)
        if body == SelectBody():
            count = await self._queries.change(PurgeQueue(queue))
            return Selected(scanned=count, matched=count, done=count)

        async def do(rows: list[dict[str, Any]]) -> int:
            return await moved_in_batches(self._queries, queue, rows, None)

        return await self._select(queue, body, do)

    async def requeue(self, query: QueueQuery, body: SelectBody) -> Selected:
        queue = check_name(query.queue)

        async def do(rows: list[dict[str, Any]]) -> int:
            results = await self._queries.requeue(queue, [row["uid"] for row in rows])
            return results.count(Result.DONE)

        if body.uids is None:
            body = msgspec.structs.replace(body, where=[*body.where, "state=delayed"])
        return await self._select(queue, body, do)

    async def redrive(self, caller: Caller, query: QueueQuery, body: RedriveBody) -> Selected:
        queue, to = check_name(query.queue), None if body.to is None else check_name(body.to)
        if to == queue:
            raise BadField("the dead letters are in that queue already; give another one")
        if to is None and body.uids is not None:
            raise BadField("name the queue that these uids go to; or pick them by a condition, uid=...")
        if to is None:
            body = msgspec.structs.replace(body, where=[*body.where, "header.wakeq-origin-uid!="])
        senders: dict[str, bool] = {}  # the queues that letters name, and whether those send their dead letters here

        async def do(rows: list[dict[str, Any]]) -> int:
            by_queue: dict[str, list[dict[str, Any]]] = {}
            for row in rows:
                target = _origin_of(row) if to is None else to
                if target is None or target == queue:
                    continue
                caller.require(ADMIN, target)  # whoever wrote the letter named it
                if to is None and target not in senders:
                    senders[target] = body.anywhere or await self._sends_to(target, queue)
                if to is not None or senders[target]:
                    by_queue.setdefault(target, []).append(row)
            done = 0
            for target, mine in by_queue.items():
                done += await moved_in_batches(self._queries, queue, mine, target, redrive=True)
            return done

        selected = await self._select(queue, body, do)
        strangers = sorted(name for name, sends_here in senders.items() if not sends_here)
        return msgspec.structs.replace(selected, strangers=strangers)

    async def _sends_to(self, origin: str, queue: str) -> bool:
        """Whether the dead letters of a queue come to another; one that is gone is known by its name."""
        if origin + DEAD_SUFFIX == queue:
            return True
        try:
            stats = await self._queries.stats(origin)
        except Denied:
            return False
        return dead_letter_of(origin, msgspec.convert(stats["policies"], Policies)) == queue

    async def release(self, query: QueueQuery, body: ReleaseBody) -> Released:
        queue = check_name(query.queue)
        return Released(sum([await self._queries.release(queue, uid) for uid in body.uids]))

    async def _select(self, queue: str, body: SelectBody, do: Any) -> Selected:
        return await Selection(self._queries, self._now_ms, queue, body).run(do)


def _peeked(page: Page) -> Peeked:
    return Peeked([shown(row) for row in page.rows], page.after if page.after < page.last else 0)


def _origin_of(row: dict[str, Any]) -> str | None:
    """Return where a letter came from, as it says; None if that can be no queue: whoever wrote it may say anything."""
    try:
        return check_name(headers_of(row).get(ORIGIN, ""))
    except BadName:
        return None


def _as_cause(queue: str, uid: str, headers: dict[str, str]) -> dict[str, Any]:
    """Return what a dead letter says of its message."""
    error = f": {headers['wakeq-error']}" if "wakeq-error" in headers else ""
    text = (
        f"it is a dead letter, {uid} in queue {queue}: {headers.get('wakeq-reason', '?')} "
        f"after {headers.get('wakeq-deliveries', '?')} deliveries{error}"
    )
    return {"code": "dead", "text": text, "queue": queue, "uid": uid}
