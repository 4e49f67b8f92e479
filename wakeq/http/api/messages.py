"""MessageRoutes: messages and leases in the HTTP API: look, search, explain, move, purge, requeue, redrive, release.

The log moves messages that no worker has; a leased message can only be released.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from wakeq.http.api.api import Route
from wakeq.http.api.queries import Queries, RequestRefused
from wakeq.http.api.queues import Name, QueueQuery
from wakeq.http.api.selection import (
    SCANNED_MAX,
    UIDS_MAX,
    SelectBody,
    Selected,
    Selection,
    candidate_of,
    headers_of,
    move_in_batches,
    shown,
)
from wakeq.http.callers import ADMIN, READ, Caller
from wakeq.protocol.catalog import Policies, dead_letter_of
from wakeq.protocol.errors import BadField
from wakeq.protocol.log.entries import PurgeQueue, Result
from wakeq.protocol.log.events import MessageEvent
from wakeq.protocol.names import check_name
from wakeq.protocol.queue.dead_letters import ORIGIN_UID
from wakeq.protocol.queue.where import fits, parse_condition
from wakeq.protocol.queue.why import moment
from wakeq.protocol.redrive import ORIGIN, Origins
from wakeq.protocol.uid import parse

LOOK_MAX = 1_000
# An answer with so many bytes of bodies gets no other page; one page has up to 4 MiB.
SHOWN_BYTES = 1 << 20
# A search reads so many rows and tests them without a break, some milliseconds.
SEARCHED_TOGETHER = 50
# Bodies that one call looks at.
LOOKED_BYTES_MAX = 16 << 20
# Answers about a message that may have become a dead letter.
NOT_IN_QUEUE = {"gone", "no_uid", "other_queue"}
# How a message ended, by the last event of its life; others are words that `was` stands before.
ENDINGS = {
    "dead lettered": "became a dead letter",
    "expired": "expired",
    "moved": "was moved to another queue",
    "deleted": "was deleted by an operator",
}
# Dead letters that are searched for the one that a message became.
LETTERS_MAX = 10_000
PAGE = 500

Uid = Annotated[str, Meta(min_length=1, max_length=255)]
Count = Annotated[int, Meta(ge=1, le=LOOK_MAX)]


class LookQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Messages in a state, page by page: `after` is that of the page before.

    The ready ones come in the order of delivery; other states, and messages that are searched for by a condition
    `where`, in the order of publication.  Bodies longer than `body_max` are cut.
    """

    queue: Name
    state: Literal["ready", "delayed", "leased", "any", "all"] = "ready"
    count: Count = 50
    after: Annotated[int, Meta(ge=0)] = 0
    where: Annotated[str, Meta(max_length=1_000)] = ""
    body_max: Annotated[int, Meta(ge=0)] | None = None


class Looked(msgspec.Struct):
    """Messages, up to 4 MiB of bodies.

    `after` requests the next page, and is 0 if there is none.  A search looks at a limited number of messages in one
    call: `scanned` of the `size` messages of the queue.  So it may find none and yet have an `after`.
    """

    messages: list[dict[str, Any]]
    after: int = 0
    scanned: int = 0
    size: int = 0


class LeasesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The leases of a queue after number `after`, page by page."""

    queue: Name
    after: Annotated[int, Meta(ge=0)] = 0


class Claims(msgspec.Struct):
    """The open claims: source, epoch, messages, until_ms, is_published, and the readers of the source."""

    claims: list[dict[str, Any]]


class UidQuery(msgspec.Struct, forbid_unknown_fields=True):
    """One message."""

    queue: Name
    uid: Uid


class MoveBody(SelectBody, forbid_unknown_fields=True, kw_only=True):
    """The messages to move, and the queue that they are moved to."""

    to: Name


class RedriveBody(SelectBody, forbid_unknown_fields=True, kw_only=True):
    """The dead letters to redrive, to the queue `to` or each to the queue that it came from.

    A letter whose origin does not send its dead letters to this queue stays, unless `anywhere` is true.
    """

    to: Name | None = None
    anywhere: bool = False


class ReleaseBody(msgspec.Struct, forbid_unknown_fields=True):
    """The messages whose leases end."""

    uids: Annotated[list[Uid], Meta(min_length=1, max_length=UIDS_MAX)]


class Released(msgspec.Struct):
    """The number of messages that were released."""

    done: int


# Finds how a message ended, by its queue, the id of that, and its number in it.
EndingOf = Callable[[str, int, int], Awaitable[MessageEvent | None]]


def message_routes(queries: Queries, now_ms: Callable[[], int], ending_of: EndingOf) -> Sequence[Route]:
    """Return the routes for messages and leases."""
    routes = _MessageRoutes(queries, now_ms, ending_of)
    query, picked = QueueQuery, Selected
    return (
        Route("GET", "/messages", "Show messages", READ, routes.look, LookQuery, answer=Looked, is_search=True),
        Route(
            "GET",
            "/messages/why",
            "Explain why a message is not being processed",
            READ,
            routes.why,
            UidQuery,
            by_caller=True,
            is_search=True,
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
        Route("POST", "/messages/purge", "Delete messages", ADMIN, routes.purge, query, SelectBody, picked),
        Route(
            "POST",
            "/messages/requeue",
            "Make delayed messages due now",
            ADMIN,
            routes.requeue,
            query,
            SelectBody,
            picked,
        ),
        Route(
            "POST",
            "/messages/redrive",
            "Move dead letters back",
            ADMIN,
            routes.redrive,
            query,
            RedriveBody,
            picked,
            by_caller=True,
        ),
        Route("GET", "/leases", "Show leased messages", READ, routes.leases, LeasesQuery, answer=Looked),
        Route("GET", "/claims", "Show claims of batches", READ, routes.claims, query, answer=Claims),
        Route(
            "POST", "/leases/release", "Release leases of workers", ADMIN, routes.release, query, ReleaseBody, Released
        ),
    )


class _MessageRoutes:
    def __init__(self, queries: Queries, now_ms: Callable[[], int], ending_of: EndingOf) -> None:
        self._queries = queries
        self._ending_of = ending_of
        self._now_ms = now_ms

    # --- reading ---------------------------------------------------------------------------------------------------

    async def look(self, query: LookQuery) -> Looked:
        queue = check_name(query.queue)
        conditions = [parse_condition(query.where)] if query.where else []
        state = "all" if query.state == "any" else query.state
        in_line = state == "ready" and not conditions
        found, after = Looked([], query.after), query.after
        looked_bytes = shown_bytes = 0
        while True:
            room = query.count - len(found.messages)
            count = SEARCHED_TOGETHER if conditions else room
            page = await self._queries.page(queue, after, count, state=state, in_line=in_line)
            now_ms = self._now_ms()
            fitting = [row for row in page.rows if fits(candidate_of(row, now_ms), conditions)]
            found.messages += [shown(row, body_max=query.body_max) for row in fitting[:room]]
            found.scanned, found.size = found.scanned + page.looked_at, page.size
            looked_bytes += sum(len(row["body"]) for row in page.rows)
            shown_bytes += sum(len(row["body"]) for row in fitting[:room])
            after = page.after
            if len(fitting) > room:
                # The next page begins behind the last message that is shown.
                after = fitting[room - 1]["number"]
            is_full = len(found.messages) == query.count or shown_bytes >= SHOWN_BYTES
            is_tired = found.scanned >= SCANNED_MAX or looked_bytes >= LOOKED_BYTES_MAX
            if not after or is_full or is_tired or not (conditions or state == "delayed"):
                found.after = after
                return found

    async def leases(self, query: LeasesQuery) -> Looked:
        page = await self._queries.page(check_name(query.queue), query.after, PAGE, state="leased")
        return Looked([shown(row) for row in page.rows], page.after, page.looked_at, page.size)

    async def claims(self, query: QueueQuery) -> Claims:
        return Claims(await self._queries.claims(check_name(query.queue)))

    async def why(self, caller: Caller, query: UidQuery) -> dict[str, Any]:
        """Explain a message; if it is gone, look for its dead letter, then for its end in the log."""
        facts = await self._queries.why(check_name(query.queue), query.uid)
        if facts["causes"][0]["code"] in NOT_IN_QUEUE:
            letter = await self._letter_of(caller, query.queue, query.uid)
            if letter is not None:
                facts["causes"] = [letter]
            elif facts["causes"][0]["code"] == "gone":
                parsed = parse(query.uid)
                ending = None if parsed is None else await self._ending_of(query.queue, *parsed)
                if ending is not None:
                    how = ENDINGS.get(ending.event, f"was {ending.event}")
                    facts["causes"][0] |= {"text": f"it {how} at {moment(ending.at_ms)}", "at_ms": ending.at_ms}
        return facts

    async def _letter_of(self, caller: Caller, queue: str, uid: str) -> dict[str, Any] | None:
        dead = await self._dead_letters_of(queue)
        if dead is None or not caller.may(READ, dead):
            return None
        after = scanned = 0
        while scanned < LETTERS_MAX:
            try:
                page = await self._queries.page(dead, after, PAGE)
            except RequestRefused:
                # The queue has never had a dead letter.
                return None
            for row in page.rows:
                headers = headers_of(row)
                if headers.get(ORIGIN_UID) == uid and headers.get(ORIGIN) == queue:
                    return _as_cause(dead, row["uid"], headers)
            if not page.after:
                return None
            after, scanned = page.after, scanned + len(page.rows)
        return None

    # --- writing ---------------------------------------------------------------------------------------------------

    async def move(self, caller: Caller, query: QueueQuery, body: MoveBody) -> Selected:
        queue, to = check_name(query.queue), check_name(body.to)
        caller.require(ADMIN, to)
        if queue == to:
            raise BadField("the messages are in that queue already; choose another one")

        async def do(rows: list[dict[str, Any]]) -> int:
            return await move_in_batches(self._queries, queue, rows, to)

        return await self._select(queue, body, do)

    async def purge(self, query: QueueQuery, body: SelectBody) -> Selected:
        """Delete matching messages; without any condition the whole queue at once, with its leased messages."""
        queue = check_name(query.queue)
        if body == SelectBody():
            count = await self._queries.change(PurgeQueue(queue))
            return Selected(scanned=count, matched=count, done=count)

        async def do(rows: list[dict[str, Any]]) -> int:
            return await move_in_batches(self._queries, queue, rows, None)

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
            raise BadField("the dead letters are in that queue already; choose another one")
        if to is None and body.uids is not None:
            raise BadField("redriving by uids needs a queue in `to`; or select them by a condition, uid=...")
        if to is None:
            body = msgspec.structs.replace(body, where=[*body.where, "header.wakeq-origin-uid!="])
        origins = Origins(queue, anywhere=body.anywhere)

        async def do(rows: list[dict[str, Any]]) -> int:
            by_queue: dict[str, list[dict[str, Any]]] = {}
            for row in rows:
                target = origins.origin_of(headers_of(row)) if to is None else to
                if target is None:
                    continue
                # The publisher of a letter chose its origin, so the caller needs the right on it.
                caller.require(ADMIN, target)
                if to is None and origins.is_unknown(target):
                    origins.learn(target, await self._dead_letters_of(target))
                if to is not None or origins.allows(target):
                    by_queue.setdefault(target, []).append(row)
            done = 0
            for target, mine in by_queue.items():
                done += await move_in_batches(self._queries, queue, mine, target, redrive=True)
            return done

        selected = await self._select(queue, body, do)
        return msgspec.structs.replace(selected, strangers=sorted(origins.strangers))

    async def _dead_letters_of(self, queue: str) -> str | None:
        """Return the dead-letter queue of a queue, or None if it does not exist."""
        try:
            stats = await self._queries.stats(queue)
        except RequestRefused:
            return None
        return dead_letter_of(queue, msgspec.convert(stats["policies"], Policies))

    async def release(self, query: QueueQuery, body: ReleaseBody) -> Released:
        queue = check_name(query.queue)
        return Released(sum([await self._queries.release(queue, uid) for uid in body.uids]))

    async def _select(self, queue: str, body: SelectBody, do: Any) -> Selected:
        return await Selection(self._queries, self._now_ms, queue, body).run(do)


def _as_cause(queue: str, uid: str, headers: dict[str, str]) -> dict[str, Any]:
    """Return the cause that a dead letter gives for its message."""
    error = f": {headers['wakeq-error']}" if "wakeq-error" in headers else ""
    text = (
        f"it is a dead letter, {uid} in queue {queue}: {headers.get('wakeq-reason', '?')} "
        f"after {headers.get('wakeq-deliveries', '?')} deliveries{error}"
    )
    return {"code": "dead", "text": text, "queue": queue, "uid": uid}
