"""Journal: the history of a node over HTTP, for readers that do not have its disk.

    GET /journal --> Listing;  GET /journal/segment, /journal/outcomes, with Range --> bytes of the files as they are

The bodies of all queues are in it, so a caller needs the right to read all of them.  One thread of the storage reads
the files, piece by piece.  Answers are limited in number and in time: a reader of old entries must not delay messages,
and one that does not read must not keep out the others.  Nothing is written or decoded here.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Annotated, TypeVar

import msgspec
from aiohttp import web
from msgspec import Meta

from wakeq.http.api.api import Route, error_response
from wakeq.http.api.streaming import write_in_time
from wakeq.http.callers import READ, Caller
from wakeq.protocol.errors import BadField, Busy, HistoryGone, WakeqError
from wakeq.protocol.log.format import Identity
from wakeq.protocol.log.listing import Listing
from wakeq.storage.log.history import HistoryFile, HistoryFiles
from wakeq.storage.thread import Disk

CONTENT_TYPE = "application/octet-stream"
# Between two pieces of one answer the loop serves everything else.
PIECE_BYTES = 1 << 18
SENDING_MAX = 8
WAITING_MAX = 256
WAIT_S_MAX = 30.0
# Enough for a whole segment over a slow line.
SEND_S_MAX = 600.0
# A read that takes longer than this hangs in its disk; the broker stops without it.
STOP_S_MAX = 5.0
INDEX_MAX = 2**63 - 1

T = TypeVar("T")

logger = logging.getLogger("wakeq.journal")


class FileQuery(msgspec.Struct, forbid_unknown_fields=True):
    """A file by its first entry; with `cluster` and `node`, another node refuses (it has other files of that name)."""

    first_index: Annotated[int, Meta(ge=1, le=INDEX_MAX)]
    cluster: Annotated[str, Meta(max_length=32)] = ""
    node: Annotated[int, Meta(ge=0, le=INDEX_MAX)] = 0


class Journal:
    """Serves the files of the history, a limited number at a time."""

    def __init__(self, identity: Identity, files: HistoryFiles, new_disk: Callable[[str], Disk]) -> None:
        self._identity = identity
        self._files = files
        self._new_disk = new_disk
        # Starts with the first request.
        self._disk: Disk | None = None
        self._turns = asyncio.Semaphore(SENDING_MAX)
        # The connections of answers that are being sent.
        self._sending: set[asyncio.Transport] = set()
        # Requests that have no turn yet.
        self._waiting = 0
        self._is_stopping = False

    def routes(self) -> Sequence[Route]:
        whole = "List the parts of the history that this node has"
        segment, outcomes = "Read a part of the log", "Read outcomes of entries"
        file = partial(Route, query=FileQuery, streams=CONTENT_TYPE, has_ranges=True)
        return (
            Route("GET", "/journal", whole, READ, self.listing, answer=Listing),
            file("GET", "/journal/segment", segment, READ, self.segment),
            file("GET", "/journal/outcomes", outcomes, READ, self.outcomes),
        )

    async def stop(self) -> None:
        """End all answers, because the broker stops."""
        self._is_stopping = True
        # A peer that does not read must not delay the stop.
        for transport in self._sending:
            transport.abort()
        if self._disk is None:
            return
        # The thread gives its results to the loop, so the loop must not end before the last one.
        done = asyncio.Event()
        self._disk.submit(lambda: None, lambda _: done.set())
        with suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), STOP_S_MAX)
        self._disk.close(wait=False)

    async def listing(self) -> Listing:
        async with self.turn():
            return await self.read(self._files.listing)

    async def segment(self, request: web.Request, _: Caller, query: FileQuery) -> web.StreamResponse:
        return await self._send(request, query, self._files.open_segment)

    async def outcomes(self, request: web.Request, _: Caller, query: FileQuery) -> web.StreamResponse:
        return await self._send(request, query, self._files.open_outcomes)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn; turns come in the order of the requests."""
        if self._waiting >= WAITING_MAX:
            raise Busy(f"{WAITING_MAX} requests for the history are waiting already; try again later")
        self._waiting += 1
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                await self._turns.acquire()
        except TimeoutError:
            raise Busy(f"{SENDING_MAX} readers of the history are slow; try again later") from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._turns.release()

    async def read(self, work: Callable[[], T]) -> T:
        """Do this in the thread."""
        if self._is_stopping:
            raise Busy("the broker is stopping; try again later, or ask another node")
        self._disk = self._disk or self._new_disk("wakeq-journal")
        read: asyncio.Future[T | BaseException] = asyncio.get_running_loop().create_future()

        def done(result: T | BaseException) -> None:
            # If the request was cancelled, nobody waits for the result.
            if not read.done():
                read.set_result(result)
            elif isinstance(result, HistoryFile):
                result.close()

        self._disk.submit(work, done)
        result = await read
        if isinstance(result, BaseException):
            raise result
        return result

    async def _send(
        self, request: web.Request, query: FileQuery, opening: Callable[[int], HistoryFile]
    ) -> web.StreamResponse:
        try:
            wanted = request.http_range
        except ValueError:
            raise BadField("the header Range must be one range, such as bytes=0-65535") from None
        own = self._identity
        if query.cluster not in ("", own.cluster_id.hex()) or query.node not in (0, own.node_id):
            raise HistoryGone(
                f"this is {own}, and the file is of another node: give the address of each node, not one for several"
            )
        async with self.turn():
            file = await self.read(lambda: opening(query.first_index))
            transport = request.transport
            if transport is not None:
                self._sending.add(transport)
            try:
                async with asyncio.timeout(SEND_S_MAX):
                    return await self._send_range(request, wanted, file)
            except TimeoutError:
                raise _cut_off(request, f"the peer did not read a range within {SEND_S_MAX:g} s") from None
            finally:
                if transport is not None:
                    self._sending.discard(transport)
                # The last close of a removed file frees its blocks.
                if self._disk is not None and not self._is_stopping:
                    self._disk.submit(file.close, lambda _: None)
                else:
                    file.close()

    async def _send_range(self, request: web.Request, wanted: slice, file: HistoryFile) -> web.StreamResponse:
        size = file.size_bytes
        first, end, _ = wanted.indices(size)
        is_part = "Range" in request.headers
        if is_part and first >= end:
            refusal = error_response(BadField.code, f"the file has {size} bytes, the range begins behind them")
            refusal.set_status(web.HTTPRequestRangeNotSatisfiable.status_code)
            refusal.headers["Content-Range"] = f"bytes */{size}"
            return refusal
        response = web.StreamResponse(status=206 if is_part else 200)
        response.headers.update({"Accept-Ranges": "bytes", "Cache-Control": "no-store", "Content-Type": CONTENT_TYPE})
        if is_part:
            response.headers["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
        response.content_length = end - first
        await response.prepare(request)
        start = first
        while start < end:
            try:
                piece = await self.read(partial(file.read, start, min(PIECE_BYTES, end - start)))
            except WakeqError as error:
                logger.warning("an answer with a part of the history was cut off: %s", error)
                raise _cut_off(request, str(error)) from error
            if not piece:
                raise _cut_off(request, f"{file.path} became shorter while it was read")
            await write_in_time(request, response, piece)
            start += len(piece)
        await response.write_eof()
        return response


def _cut_off(request: web.Request, reason: str) -> ConnectionResetError:
    """Abort the connection: the client must not take a part of an answer for the whole."""
    if request.transport is not None:
        request.transport.abort()
    return ConnectionResetError(reason)
