"""EngineThread: the thread and the loop of an engine, until it is stopped, or until the engine is done by itself.

Its methods are called from other threads, also from signal handlers. It knows nothing of tasks and messages.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from wakeq.client.aio import AsyncClient
from wakeq.worker.engine.engine import Engine, first_of
from wakeq.worker.resources import ResourceFailed
from wakeq.worker.schedule import Timetable


class EngineThread:
    """One run of an engine, in a thread of its own."""

    def __init__(
        self,
        make_engine: "Callable[[], Engine[AsyncClient]]",
        *,
        grace_s: float,
        timetable: Timetable | None = None,
        ready: Callable[[str], None] | None = None,
    ) -> None:
        """`grace_s` is the grace period for handlers that still run when the engine ends by itself.

        `ready` is called once with the address of the broker, when the engine has started.
        """
        self._make_engine = make_engine
        self._timetable = timetable
        self._ready = ready
        self._thread = threading.Thread(target=self._run, name="wakeq-worker", daemon=True)
        self._started: Future[None] = Future()
        # The number of handlers that had not ended, or the error that ended the engine.
        self.ended: Future[int] = Future()
        # The number of messages that were handled; set at the end.
        self.handled = 0
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        # An unexpected error in a step of the engine.
        self._bug: BaseException | None = None
        self._grace_s = grace_s
        self._loop.set_exception_handler(self._fail)

    def launch(self) -> None:
        """Start the thread. An error is reported by `ended`."""
        self._thread.start()

    def start(self) -> None:
        """Start the thread and return when the worker is connected and subscribed; raise the error that prevents it."""
        self.launch()
        self._started.result()

    def stop(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._call_soon(self._stop.set)

    def hurry(self) -> None:
        """Cut the grace period short."""
        self._call_soon(self._hurry.set)

    def wait(self) -> int:
        """Wait for the end; return the number of handlers that had not ended."""
        self._thread.join()
        return self.ended.result()

    def _call_soon(self, callback: Callable[[], None]) -> None:
        # If the loop is closed, the engine has ended already.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                self.ended.set_result(runner.run(self._run_engine()))
            except BaseException as error:
                if not self._started.done():
                    self._started.set_exception(error)
                self.ended.set_exception(error)

    def _fail(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """End the worker after a bug in a step of the engine. The messages are redelivered when their leases end."""
        self._bug = self._bug or context.get("exception") or RuntimeError(context["message"])
        self._stop.set()

    async def _run_engine(self) -> int:
        engine = self._make_engine()
        try:
            has_started = await self._start_engine(engine)
            self._started.set_result(None)
            if has_started and self._ready is not None:
                self._ready(engine.client.address)
            with self._publishing_schedules(engine.client) if has_started else nullcontext():
                await first_of(self._stop.wait(), engine.done.wait())
            if self._bug is not None:
                raise self._bug
            left = await engine.stop(self._grace_s, self._hurry) if has_started else 0
            if engine.lost_resource:
                raise ResourceFailed(engine.lost_resource)
            return left
        finally:
            self.handled = engine.handled
            engine.end_pools()
            await engine.client.close()
            await self._close_hooks(engine)

    async def _close_hooks(self, engine: Engine[AsyncClient]) -> None:
        """Close the resources, since no handler uses them any more, and let the listeners hear the last events."""
        if engine.resources is not None:
            if self._hurry.is_set():
                await engine.resources.close(is_urgent=True)
            else:
                await first_of(engine.resources.close(is_urgent=False), self._hurry.wait())
        if engine.listeners is not None:
            engine.listeners.close()

    @contextmanager
    def _publishing_schedules(self, client: AsyncClient) -> Iterator[None]:
        """Publish the messages of the timetable until the end of the block."""
        if self._timetable is None:
            yield
            return
        publishing = asyncio.ensure_future(self._timetable.publish_due(client))
        publishing.add_done_callback(self._publishing_ended)
        try:
            yield
        finally:
            publishing.cancel()

    def _publishing_ended(self, publishing: "asyncio.Future[None]") -> None:
        """Fail if the timetable ended by an error; it ends only by cancellation otherwise."""
        if not publishing.cancelled() and (error := publishing.exception()) is not None:
            self._fail(self._loop, {"exception": error})

    async def _start_engine(self, engine: Engine[AsyncClient]) -> bool:
        """Connect and start. Return False if the stop came first; a broker that does not answer must not delay it."""
        starting = asyncio.ensure_future(_connect_and_start(engine))
        stopping = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            stopping.cancel()
            starting.result()
            return True
        starting.cancel()
        return False


async def _connect_and_start(engine: Engine[AsyncClient]) -> None:
    await engine.client.connect()
    await engine.start()
