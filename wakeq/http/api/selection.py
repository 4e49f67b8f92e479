"""Selection: applies an operation to the messages that an operator selects, in bounded pieces.

    uids, or conditions --> pages of the queue --> matching messages --> one batch at a time --> counts

One call scans a bounded number of messages and returns where the next call continues.  So nothing runs for hours inside
the broker, and the caller can stop, slow down and show progress.  Messages published after the first call are not
scanned: a dead letter that becomes a dead letter again is not redriven twice.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from wakeq.http.api.queries import Queries, RequestRefused
from wakeq.protocol.errors import BadField
from wakeq.protocol.queue.where import Candidate, Condition, fits, parse_condition
from wakeq.protocol.wire.worker.codec import text_of

# Messages scanned together.
PAGE = 100
# Messages scanned in one call.
SCANNED_MAX = 10_000
UIDS_MAX = 1_000
SHOWN_MAX = 100
# A call with a rate ends after this time and returns where to continue.
PACED_S_MAX = 30.0

# What Python says of text that ends in the middle of a character.
ENDS_IN_A_CHARACTER = "unexpected end of data"

# Applies the operation to the rows of a batch; returns how many were done.
Do = Callable[[list[dict[str, Any]]], Awaitable[int]]


class SelectBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Messages by uid; or up to `limit` messages that match the conditions and are not leased.

    A first call has `after` 0; its answer has the `after` and `through` of the next call.
    """

    uids: Annotated[list[str], Meta(min_length=1, max_length=UIDS_MAX)] | None = None
    where: Annotated[list[str], Meta(max_length=20)] = []
    limit: Annotated[int, Meta(ge=1, le=SCANNED_MAX)] = 1_000
    rate: Annotated[float, Meta(gt=0, le=1_000_000)] | None = None
    after: Annotated[int, Meta(ge=0)] = 0
    through: Annotated[int, Meta(ge=0)] | None = None
    dry_run: bool = False


class Selected(msgspec.Struct, kw_only=True):
    """The number of messages that were scanned, matched, and done.

    `after` is 0 when all have been scanned.  A dry run returns the first matches as `messages`.  For a redrive,
    `strangers` are origins that do not send their dead letters to this queue: their letters stay.
    """

    scanned: int = 0
    matched: int = 0
    done: int = 0
    after: int = 0
    through: int = 0
    messages: list[dict[str, Any]] = []
    strangers: list[str] = []


def shown(row: dict[str, Any], *, body_max: int | None = None) -> dict[str, Any]:
    """Return a row as JSON has it: a body that is not text in base 64, headers as a map.

    A body that is longer than `body_max` bytes is cut there; `size` is that of the whole.
    """
    body: bytes = row["body"]
    text, encoding = text_of(body if body_max is None else cut(body, body_max))
    more = {"body": text, "encoding": "base64" if encoding else "text", "size": len(body), "headers": headers_of(row)}
    return row | more


def cut(body: bytes, bytes_max: int) -> bytes:
    """Return the beginning of a body; if it is text, without a character that is not whole."""
    part = body[:bytes_max]
    if len(part) == len(body):
        return body
    try:
        part.decode()
    except UnicodeDecodeError as error:
        return part[: error.start] if error.reason == ENDS_IN_A_CHARACTER else part
    return part


def headers_of(row: dict[str, Any]) -> dict[str, str]:
    return msgspec.msgpack.decode(row["headers"], type=dict[str, str]) if row["headers"] else {}


def candidate_of(row: dict[str, Any], now_ms: int) -> Candidate:
    """Return the fields of a row that conditions can test."""
    return Candidate(
        row["uid"],
        row["state"],
        row["body"],
        headers_of(row),
        row["priority"],
        max(0, now_ms - row["published_ms"]) / 1000,
        row["error_count"],
        row["failures"],
        row["error"],
    )


class Selection:
    """One call of an operation on selected messages."""

    def __init__(self, queries: Queries, now_ms: Callable[[], int], queue: str, body: SelectBody) -> None:
        if body.uids is not None and (body.where or body.after or body.dry_run):
            raise BadField("uids cannot be combined with where, after or dry_run")
        self._queries = queries
        self._now_ms = now_ms
        self._queue = queue
        self._body = body
        self._conditions: Sequence[Condition] = [parse_condition(text) for text in body.where]
        self._result = Selected(through=body.through or 0)
        self._pace = _Pace(body.rate)

    async def run(self, do: Do) -> Selected:
        """Apply the operation to every selected message, one batch at a time."""
        if self._body.uids is not None:
            return await self._by_uid(do, self._body.uids)
        after = self._body.after
        while self._result.scanned < SCANNED_MAX and not self._pace.is_over:
            page = await self._queries.page(self._queue, after, PAGE)
            self._result.through = self._result.through or page.last
            rows = self._matching(page.rows)
            self._result.scanned += len(page.rows)
            self._result.matched += len(rows)
            after = page.after if page.after <= self._result.through else 0
            await self._do(do, rows)
            if not after or self._result.matched >= self._body.limit:
                break
        self._result.after = after
        return self._result

    def _matching(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows that match; leased messages never do."""
        now_ms = self._now_ms()
        matching = [
            row
            for row in rows
            if row["state"] in ("ready", "delayed")
            and row["number"] <= self._result.through
            and fits(candidate_of(row, now_ms), self._conditions)
        ]
        return matching[: self._body.limit - self._result.matched]

    async def _do(self, do: Do, rows: list[dict[str, Any]]) -> None:
        if self._body.dry_run:
            room = SHOWN_MAX - len(self._result.messages)
            self._result.messages += [shown(row) for row in rows[:room]]
        elif rows:
            await self._pace.wait(len(rows))
            self._result.done += await do(rows)

    async def _by_uid(self, do: Do, uids: list[str]) -> Selected:
        rows = [{"uid": uid, "headers": b""} for uid in uids]
        for start in range(0, len(rows), PAGE):
            batch = rows[start : start + PAGE]
            await self._pace.wait(len(batch))
            self._result.done += await do(batch)
        self._result.scanned = self._result.matched = len(uids)
        return self._result


class _Pace:
    """Limits the messages per second."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._loop = asyncio.get_running_loop()
        self._began_s = self._next_s = self._loop.time()

    async def wait(self, count: int) -> None:
        if self._rate is not None:
            await asyncio.sleep(max(0.0, self._next_s - self._loop.time()))
            self._next_s = max(self._next_s, self._loop.time()) + count / self._rate

    @property
    def is_over(self) -> bool:
        return self._rate is not None and self._next_s - self._began_s > PACED_S_MAX


async def move_in_batches(
    queries: Queries, queue: str, rows: Sequence[dict[str, Any]], to: str | None, *, redrive: bool = False
) -> int:
    """Move messages, and repeat while some move: one entry of the log holds a bounded number of bytes."""
    remaining, done = [row["uid"] for row in rows], 0
    while remaining:
        found = await _move_batch(queries, queue, remaining, to, redrive=redrive)
        moved = [uid for uid, new in found.items() if new is not None]
        done += len(moved)
        if not moved:
            break
        remaining = [uid for uid in remaining if found.get(uid) is None]
    return done


async def _move_batch(
    queries: Queries, queue: str, uids: list[str], to: str | None, *, redrive: bool
) -> dict[str, str | None]:
    """Move a batch; if one of its messages is gone, which refuses the whole batch, move each message alone."""
    try:
        return await queries.move(queue, uids, to, redrive=redrive)
    except RequestRefused as refused:
        if refused.refusal.code != "UNKNOWN_UID" or len(uids) == 1:
            raise
    found: dict[str, str | None] = {}
    for uid in uids:
        try:
            found |= await queries.move(queue, [uid], to, redrive=redrive)
        except RequestRefused as refused:
            if refused.refusal.code != "UNKNOWN_UID":
                raise
    return found
