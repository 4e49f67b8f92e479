"""EngineThread: the thread and the loop of an engine, from start to stop, or until the engine is done by itself.

Called from other threads, also from a signal's handler; knows nothing of tasks and messages.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from wakeq.client.aio import AsyncClient
from wakeq.worker.engine.engine import Engine, first_of
from wakeq.worker.schedule.timetable import Timetable


class EngineThread:
    """The thread and the loop of an engine, from start to stop."""

    def __init__(
        self,
        make_engine: "Callable[[], Engine[AsyncClient]]",
        *,
        grace_s: float,
        timetable: Timetable | None = None,
    ) -> None:
        """`grace_s` is for handlers that still run when the engine ends by itself."""
        self._make_engine = make_engine
        self._timetable = timetable
        self._thread = threading.Thread(target=self._serve, name="wakeq-worker", daemon=True)
        self._started: Future[None] = Future()
        self.ended: Future[int] = Future()
        self.handled = 0  # messages, when it has ended
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._bug: BaseException | None = None
        self._grace_s = grace_s
        self._loop.set_exception_handler(self._broken)

    def launch(self) -> None:
        """Begin; what is in the way is told by `ended`."""
        self._thread.start()

    def start(self) -> None:
        """Return when it works; raise what was in the way."""
        self.launch()
        self._started.result()

    def stop(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._tell(self._stop.set)

    def hurry(self) -> None:
        self._tell(self._hurry.set)

    def wait(self) -> int:
        """Until it has ended; how many handlers had not."""
        self._thread.join()
        return self.ended.result()

    def _tell(self, what: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: it has ended already
            self._loop.call_soon_threadsafe(what)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                self.ended.set_result(runner.run(self._live()))
            except BaseException as error:
                if not self._started.done():
                    self._started.set_exception(error)
                self.ended.set_exception(error)

    def _broken(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A step of the engine failed by a bug: end, loudly, and let the leases bring the messages back."""
        self._bug = self._bug or context.get("exception") or RuntimeError(context["message"])
        self._stop.set()

    async def _live(self) -> int:
        engine = self._make_engine()
        try:
            has_begun = await self._begin(engine)
            self._started.set_result(None)
            with self._timetable_kept(engine.client) if has_begun else nullcontext():
                await first_of(self._stop.wait(), engine.done.wait())
            if self._bug is not None:
                raise self._bug
            return await engine.stop(self._grace_s, self._hurry) if has_begun else 0
        finally:
            self.handled = engine.handled
            engine.end_pools()
            await engine.client.close()

    @contextmanager
    def _timetable_kept(self, client: AsyncClient) -> Iterator[None]:
        """Meanwhile what is due by the timetable is published."""
        if self._timetable is None:
            yield
            return
        keeping = asyncio.ensure_future(self._timetable.keep(client))
        keeping.add_done_callback(self._kept)
        try:
            yield
        finally:
            keeping.cancel()

    def _kept(self, keeping: "asyncio.Future[None]") -> None:
        """It ends by being cancelled, and else by a bug."""
        if not keeping.cancelled() and (error := keeping.exception()) is not None:
            self._broken(self._loop, {"exception": error})

    async def _begin(self, engine: Engine[AsyncClient]) -> bool:
        """Connect and start; False if the stop came first, which a broker that says nothing must not hold up."""
        starting = asyncio.ensure_future(_start(engine))
        stopping = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            stopping.cancel()
            starting.result()
            return True
        starting.cancel()
        return False


async def _start(engine: Engine[AsyncClient]) -> None:
    await engine.client.connect()
    await engine.start()
