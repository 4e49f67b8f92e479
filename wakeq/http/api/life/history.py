"""History: one message as the HTTP API shows it, and its life: published, delivered, failed, acknowledged.

    GET /message           --> the message, if the queue has it
    GET /messages/history  --> its events, from the log and the journal behind it; finished messages, too

Whoever may read a queue sees what happened in it, but not the names of other queues.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from wakeq.http.api.api import Route
from wakeq.http.api.life.lives import Lives
from wakeq.http.api.messages import UidQuery
from wakeq.http.api.queries import Queries, RequestRefused
from wakeq.http.api.readable import Readable, readable
from wakeq.http.api.selection import headers_of, shown
from wakeq.http.callers import READ, Caller
from wakeq.protocol.errors import QueueNotFound
from wakeq.protocol.log.entries import Draft
from wakeq.protocol.log.events import MessageEvent
from wakeq.protocol.names import check_name
from wakeq.protocol.uid import parse


class OneMessage(msgspec.Struct):
    """A message with its body as people read it (`readable`); null if the queue does not have it, or not any more."""

    message: dict[str, Any] | None


class LifeEvent(msgspec.Struct):
    """What happened to a message; what is not known or does not apply is null."""

    at: datetime
    event: str
    # The number of the connection that published, got or acknowledged it.
    worker: int | None = None
    reason: str | None = None
    error: str | None = None
    # The queue that it went to, or came from.
    queue: str | None = None
    # The end of the lease, or the moment from which on the message is ready.
    due: datetime | None = None
    # How often it happened in a row; `at` is then the last time.
    times: int = 1


class History(msgspec.Struct):
    """The life of a message.

    `is_complete`: it was read from the publication to the end, or until now.  Else a part of it is older than `since`,
    the oldest entry that this node keeps, or could not be read in time.  `message` is as it was published, and null if
    that is not known.
    """

    uid: str
    queue: str
    events: list[LifeEvent]
    is_complete: bool
    since: datetime | None
    is_living: bool
    message: dict[str, Any] | None
    # Of very many events, so many in the middle are left out.
    left_out: int = 0


class HistoryRoutes:
    """The routes about one message."""

    def __init__(self, queries: Queries, lives: Lives) -> None:
        self._queries = queries
        self._lives = lives

    def routes(self) -> Sequence[Route]:
        return (
            Route("GET", "/message", "Show one message", READ, self.message, UidQuery, answer=OneMessage),
            Route(
                "GET",
                "/messages/history",
                "Tell the life of a message, also of one that is finished",
                READ,
                self.history,
                UidQuery,
                answer=History,
                by_caller=True,
                is_search=True,
            ),
        )

    async def message(self, query: UidQuery) -> OneMessage:
        row = await self._queries.message(check_name(query.queue), query.uid)
        return OneMessage(None if row is None else shown(row) | {"readable": readable(row["body"])})

    async def history(self, caller: Caller, query: UidQuery) -> History:
        queue, row = check_name(query.queue), None
        # The queue may be gone, and its history is still there.
        try:
            row = await self._queries.message(queue, query.uid)
        except RequestRefused as refused:
            if refused.refusal.code != QueueNotFound.code:
                raise
        place = parse(query.uid) if row is None else (row["queue_id"], row["number"])
        if place is None:
            return History(query.uid, queue, [], False, None, False, None)
        life = await self._lives.read(queue, *place, is_living=row is not None)
        events = [_shown(event, caller) for event in life.events]
        since = None if life.since_ms is None else _moment(life.since_ms)
        message = None if life.draft is None else _published(life.draft)
        return History(query.uid, queue, events, life.is_complete, since, row is not None, message, life.left_out)


def _shown(event: MessageEvent, caller: Caller) -> LifeEvent:
    queue = event.queue
    if queue is not None and not caller.may(READ, queue):
        queue = None
    due = _moment(event.due_ms) if event.due_ms > 0 else None
    about = event.worker or None, event.reason or None, event.error or None, queue, due
    return LifeEvent(_moment(event.at_ms), event.event, *about, event.times)


def _published(draft: Draft) -> dict[str, Any]:
    row = {"body": draft.body, "headers": draft.headers}
    about: Readable = readable(draft.body)
    return {
        "headers": headers_of(row),
        "priority": draft.priority,
        "delay_ms": draft.delay_ms,
        "timeout_ms": draft.timeout_ms,
        "expires_ms": draft.expires_ms,
        "readable": about,
    }


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
