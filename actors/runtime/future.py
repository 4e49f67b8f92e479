"""Future: the answer to an `ask`, for other threads to `get` and for coroutines to `await`.

    ref.ask(message, block=False) --> Future --> future.get(timeout=...), or await future

It is the future of this backend of pykka.  What pykka's own do wrong for an event loop is different here: awaiting one
never blocks the loop, and a thread that serves actors may not wait for what only it could answer.
"""

import asyncio
import sys
from collections.abc import Generator
from concurrent import futures
from threading import get_ident
from types import TracebackType
from typing import Any, Protocol, TypeVar

import pykka

T = TypeVar("T")
ExcInfo = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class Server(Protocol):
    """Who answers: a runtime."""

    thread: int


class Future(pykka.Future[T]):
    """One answer that is still to come, or has come."""

    def __init__(self, server: Server | None = None) -> None:
        super().__init__()
        # The runtime that answers, whose own thread must not wait for it; None until somebody is asked.
        self.server = server
        self._answer: futures.Future[Any] = futures.Future()
        # From now on it cannot be cancelled: one who gives up awaiting must not take the answer from the others.
        self._answer.set_running_or_notify_cancel()

    def done(self) -> bool:
        """Tell whether the answer is there."""
        return self._answer.done()

    def get(self, *, timeout: float | None = None) -> T:
        """Return the answer, or raise the exception that it is; wait for it, but never on the thread that answers."""
        if self._get_hook is not None:
            return super().get(timeout=timeout)
        if self.server is not None and self.server.thread == get_ident() and not self.done():
            raise RuntimeError("there is no answer yet, and the thread that waits here would have to give it: await it")
        try:
            self._answer.exception(timeout)
        except TimeoutError:
            raise pykka.Timeout(f"no answer within {timeout} s") from None
        return self._answer.result()  # type: ignore[no-any-return]

    def set(self, value: T | None = None) -> None:
        """Give the answer; once."""
        self._answer.set_result(value)

    def set_exception(self, exc_info: ExcInfo | None = None) -> None:
        """Give an exception as the answer, without `exc_info` the one that is being handled."""
        self._answer.set_exception((exc_info or sys.exc_info())[1])

    def __await__(self) -> Generator[Any, None, T]:
        # What pykka makes of another future (`stop`, `map`, ...) is known only by calling its hook, which may wait.
        if self._get_hook is not None:
            return asyncio.to_thread(self.get).__await__()
        return asyncio.wrap_future(self._answer).__await__()
