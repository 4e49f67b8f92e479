"""Selection: which messages of a queue an operator means, and doing something to all of them in bounded pieces.

    uids, or conditions --> pages of the queue --> those that fit --> a batch at a time --> what became of them

One call looks at a bounded number of messages and says where the next one goes on; so nothing runs for hours inside the
broker, and whoever asks can stop, slow down and show how far it is.  What was published after the first call is not
looked at: a dead letter that comes back dead is not brought back again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from wakeq.http.api.queries import Denied, Queries
from wakeq.protocol.errors import BadField
from wakeq.protocol.queue.where import Candidate, Condition, fits, parse_condition
from wakeq.protocol.wire.worker.codec import text_of

PAGE = 100  # messages looked at together
SCANNED_MAX = 10_000  # in one call
UIDS_MAX = 1_000
SHOWN_MAX = 100
PACED_S_MAX = 30.0  # a call that is to be slow ends after so long, and says where to go on

Do = Callable[[list[dict[str, Any]]], Awaitable[int]]  # the rows of a batch; how many were done


class SelectBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which messages: some uids; or all that fit the conditions and no worker has, `limit` of them at most.

    A first call has `after` 0; its answer says with which `after` and `through` the next one goes on.
    """

    uids: Annotated[list[str], Meta(min_length=1, max_length=UIDS_MAX)] | None = None
    where: Annotated[list[str], Meta(max_length=20)] = []
    limit: Annotated[int, Meta(ge=1, le=SCANNED_MAX)] = 1_000
    rate: Annotated[float, Meta(gt=0, le=1_000_000)] | None = None
    after: Annotated[int, Meta(ge=0)] = 0
    through: Annotated[int, Meta(ge=0)] | None = None
    dry_run: bool = False


class Selected(msgspec.Struct, kw_only=True):
    """How many were looked at, fitted, and were done.

    `after` is 0 when all have been looked at.  Of a dry run, `messages` are the first ones that fit.  Of a redrive,
    `strangers` are the queues that letters name and that do not send their dead letters here: these letters were left.
    """

    scanned: int = 0
    matched: int = 0
    done: int = 0
    after: int = 0
    through: int = 0
    messages: list[dict[str, Any]] = []
    strangers: list[str] = []


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a queue as JSON has it: a body that is no text in base 64, headers as a map."""
    text, encoding = text_of(row["body"])
    body = {"body": text, "encoding": "base64" if encoding else "text", "headers": headers_of(row)}
    return row | body


def headers_of(row: dict[str, Any]) -> dict[str, str]:
    return msgspec.msgpack.decode(row["headers"], type=dict[str, str]) if row["headers"] else {}


def candidate_of(row: dict[str, Any], now_ms: int) -> Candidate:
    """Return what conditions can see of a row."""
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
    """One call."""

    def __init__(self, queries: Queries, now_ms: Callable[[], int], queue: str, body: SelectBody) -> None:
        if body.uids is not None and (body.where or body.after or body.dry_run):
            raise BadField("uids are named one by one: where, after and dry_run are for those that are not")
        self._queries = queries
        self._now_ms = now_ms
        self._queue = queue
        self._body = body
        self._conditions: Sequence[Condition] = [parse_condition(text) for text in body.where]
        self._result = Selected(through=body.through or 0)
        self._pace = _Pace(body.rate)

    async def run(self, do: Do) -> Selected:
        """Do it to every message that is meant, a batch at a time."""
        if self._body.uids is not None:
            return await self._by_uid(do, self._body.uids)
        after = self._body.after
        while self._result.scanned < SCANNED_MAX and not self._pace.is_over:
            page = await self._queries.page(self._queue, after, PAGE)
            self._result.through = self._result.through or page.last
            rows = self._fitting(page.rows)
            self._result.scanned += len(page.rows)
            self._result.matched += len(rows)
            after = page.after
            if not page.rows or after > self._result.through:
                after = 0
            await self._do(do, rows)
            if not after or self._result.matched >= self._body.limit:
                break
        self._result.after = after
        return self._result

    def _fitting(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows that are meant; what a worker has is left alone."""
        now_ms = self._now_ms()
        fitting = [
            row
            for row in rows
            if row["state"] in ("ready", "delayed")
            and row["number"] <= self._result.through
            and fits(candidate_of(row, now_ms), self._conditions)
        ]
        return fitting[: self._body.limit - self._result.matched]

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
    """Lets so many a second through."""

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


async def moved_in_batches(
    queries: Queries, queue: str, rows: Sequence[dict[str, Any]], to: str | None, *, redrive: bool = False
) -> int:
    """Move messages, again and again as long as some go: one entry holds a bounded number of bytes."""
    left, done = [row["uid"] for row in rows], 0
    while left:
        found = await _moved_or_one_by_one(queries, queue, left, to, redrive=redrive)
        went = [uid for uid, new in found.items() if new is not None]
        done += len(went)
        if not went:
            break
        left = [uid for uid in left if found.get(uid) is None]
    return done


async def _moved_or_one_by_one(
    queries: Queries, queue: str, uids: list[str], to: str | None, *, redrive: bool
) -> dict[str, str | None]:
    """One message that may not go holds up all of its batch; then each goes alone."""
    try:
        return await queries.move(queue, uids, to, redrive=redrive)
    except Denied as denied:
        if denied.code != "UNKNOWN_UID" or len(uids) == 1:
            raise
    found: dict[str, str | None] = {}
    for uid in uids:
        try:
            found |= await queries.move(queue, [uid], to, redrive=redrive)
        except Denied as denied:
            if denied.code != "UNKNOWN_UID":
                raise
    return found
