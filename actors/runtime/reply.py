"""Reply: what `ask` gives back, to be awaited on a loop or read by a test without one.

    ask(message) --> Reply --> await reply   (or reply.result() once reply.done())

The process that was asked settles it once, with a value or an exception; later settlings are ignored.
It never blocks, and waiting for it never keeps a thread busy (pykka's own future blocks in `__await__`).
"""

import asyncio
from collections.abc import Generator
from contextlib import suppress
from typing import Any


class NoReplyYet(RuntimeError):
    """A reply was read before it was there."""


class Reply:
    """One answer that is still to come, or has come."""

    __slots__ = ("_done", "_error", "_value", "_waiters")

    def __init__(self) -> None:
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._waiters: list[asyncio.Future[None]] | None = None  # None until somebody awaits

    def done(self) -> bool:
        """Tell whether the answer is there."""
        return self._done

    def result(self) -> Any:
        """Return the value, or raise what the process failed with."""
        if not self._done:
            raise NoReplyYet("no reply yet: await it, or run the runtime until it is idle")
        if self._error is not None:
            raise self._error
        return self._value

    def set(self, value: Any) -> None:
        """Settle it with a value."""
        self._settle(value, None)

    def set_exception(self, error: BaseException) -> None:
        """Settle it with an exception."""
        self._settle(None, error)

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if self._done:
            return
        self._value, self._error = value, error
        self._done = True  # before the waiters are read: see __await__
        for waiter in self._waiters or ():
            with suppress(RuntimeError):  # its loop is closed: nobody waits there any more
                waiter.get_loop().call_soon_threadsafe(_release, waiter)

    def __await__(self) -> Generator[Any, None, Any]:
        if not self._done:
            waiter = asyncio.get_running_loop().create_future()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
            if not self._done:  # it may have been settled by the runtime's thread since the first look
                yield from waiter
        return self.result()


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():  # whoever awaited may have been cancelled
        waiter.set_result(None)
