"""Backup: the state of a running node as one file over HTTP.

    a view of the state store --> a thread writes the image into a pipe --> the loop --> the response

The backup contains everything that was acknowledged before the request: it waits until the store has all of that.
Nothing is written to this node's disk.  A stalled reader pins pages of the store, so there is a deadline.  A truncated
response is no backup; the checksums of the file reveal it.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web

from wakeq.actors.snapshots import living_items
from wakeq.http.api.api import Route
from wakeq.http.api.streaming import write_in_time
from wakeq.http.callers import ADMIN, Caller
from wakeq.protocol.errors import Busy
from wakeq.protocol.log.format import Identity
from wakeq.storage.state.snapshot import SnapshotHeader, stream_snapshot
from wakeq.storage.state.store import Store
from wakeq.storage.thread import Disk

CONTENT_TYPE = "application/octet-stream"
FLUSH_S_MAX = 30.0
BACKUP_S_MAX = 3_600.0
POLL_S = 0.02
PIECE_BYTES = 1 << 18

logger = logging.getLogger("wakeq.backup")


class Backup:
    """Serves one backup at a time."""

    def __init__(
        self,
        identity: Identity,
        store: Store,
        indexes: Callable[[], tuple[int, int]],
        new_disk: Callable[[str], Disk],
    ) -> None:
        self._identity = identity
        self._store = store
        # Returns the index that the queues have applied, and the index that the store has.
        self._indexes = indexes
        self._new_disk = new_disk
        self._is_running = False

    def routes(self) -> Sequence[Route]:
        about = "Download an image of the whole state"
        return (Route("GET", "/backup", about, ADMIN, self.serve, streams=CONTENT_TYPE),)

    async def serve(self, request: web.Request, caller: Caller, _: Any) -> web.StreamResponse:
        """Send the image; one at a time."""
        if self._is_running:
            raise Busy("another backup is running; try again when it has ended")
        self._is_running = True
        try:
            await self._wait_for_store()
            return await self._send(request, caller)
        finally:
            self._is_running = False

    async def _wait_for_store(self) -> None:
        """Wait until the store has every entry that the queues have applied by now."""
        target, _ = self._indexes()
        until_s = time.monotonic() + FLUSH_S_MAX
        while self._indexes()[1] < target:
            if time.monotonic() > until_s:
                raise Busy(
                    f"the state was not flushed within {FLUSH_S_MAX:g} s; the disk may be overloaded: try again later"
                )
            await asyncio.sleep(POLL_S)

    async def _send(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        await response.prepare(request)
        read_end, write_end = os.pipe()
        disk = self._new_disk("wakeq-backup")
        written: asyncio.Future[int | BaseException] = asyncio.get_running_loop().create_future()
        disk.submit(lambda: self._write(write_end), written.set_result)
        try:
            with open(read_end, "rb", buffering=0) as pipe:
                await _pump(pipe, request, response)
            result = await written
        except (ConnectionError, asyncio.CancelledError):
            logger.warning("a backup was interrupted: the client has disconnected")
            raise
        finally:
            disk.close(wait=False)
        if isinstance(result, BaseException):
            logger.error("a backup failed: %s", result)
            if request.transport is not None:
                # An orderly end would make the client believe that the backup is complete.
                request.transport.abort()
            return response
        logger.info("sent a backup of %d bytes to %s", result, caller.name)
        await response.write_eof()
        return response

    def _write(self, descriptor: int) -> int:
        """Write the image into the pipe; runs in the thread."""
        until_s = time.monotonic() + BACKUP_S_MAX

        def check() -> None:
            if time.monotonic() > until_s:
                raise TimeoutError("it took too long, and it pins pages of the state store")

        try:
            with self._store.read() as view:
                applied = view.applied()
                header = SnapshotHeader(self._identity, applied.log_index, applied.term, applied.clock_ms)
                return stream_snapshot(descriptor, header, living_items(view), check=check)
        finally:
            os.close(descriptor)


async def _pump(pipe: Any, request: web.Request, response: web.StreamResponse) -> None:
    """Copy the pipe to the response, as fast as the client reads."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=PIECE_BYTES)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    with contextlib.closing(transport):
        while piece := await reader.read(PIECE_BYTES):
            await write_in_time(request, response, piece)
