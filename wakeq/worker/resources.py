"""Resources: what a program opens before the first message of a worker and closes after its last handler.

    @contextmanager def database(): ...            -->  def store(row: Row, db: Database = resource(database)): ...
    the start of a run  -->  each opener is entered once  -->  its value is passed to the handlers that ask for it
    the end of a run    -->  all are left, in the reverse order

Plain openers are entered and left by one thread, which does nothing else, so that an opener that waits delays neither
leases nor signals. Asynchronous ones are entered and left by one task of the loop on which coroutines handle messages.
In a process of its own a task has resources of its own. No handler runs here.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    contextmanager,
)
from functools import partial
from inspect import isasyncgenfunction, isgeneratorfunction, signature, unwrap
from typing import Any, NoReturn, TypeAlias, TypeVar, cast, overload

from wakeq.protocol.errors import WakeqError
from wakeq.worker.outcome import described
from wakeq.worker.parameters import BadHandler, name_of

log = logging.getLogger("wakeq.worker")

# Resources have so much time to close, and after a second signal so much.
CLOSE_S = 10.0
URGENT_CLOSE_S = 0.5

T = TypeVar("T")
Opener: TypeAlias = Callable[[], AbstractContextManager[Any]] | Callable[[], AbstractAsyncContextManager[Any]]
Values: TypeAlias = dict[Opener, Any]


class ResourceFailed(WakeqError):
    """A resource of a worker could not be opened (the error of its opener is the cause), or ended while it ran."""

    code = "RESOURCE"


class Resource:
    """The default of a parameter that a worker fills; it stands for the value of its opener."""

    __slots__ = ("opener",)

    def __init__(self, opener: Opener) -> None:
        self.opener = opener

    def __repr__(self) -> str:
        return f"resource({name_of(self.opener)})"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{name}: {self!r} has a value only while a Worker calls the handler; in a call of your own, pass one"
        )


@overload
def resource(opener: Callable[[], AbstractContextManager[T]]) -> T: ...


@overload
def resource(opener: Callable[[], AbstractAsyncContextManager[T]]) -> T: ...


def resource(opener: Opener) -> Any:
    """Return the default for a parameter of a handler that the worker fills with what the opener yields.

    `opener` is a function with @contextmanager or @asynccontextmanager, or a class of context managers; each worker
    enters it once. The value of an asynchronous one belongs to a loop, so only an `async def` handler may ask for it.
    """
    is_asynchronous(opener)
    return Resource(opener)


def resources_of(handler: Callable[..., object]) -> dict[str, Resource]:
    """Return the resources that a handler asks for, by the names of its parameters."""
    parameters = signature(handler).parameters.items()
    return {name: parameter.default for name, parameter in parameters if isinstance(parameter.default, Resource)}


def is_asynchronous(function: Callable[..., object]) -> bool:
    """Return whether a function makes asynchronous context managers. Raise BadHandler if it makes none at all."""
    made_by = unwrap(function.func if isinstance(function, partial) else function)
    if made_by is function and (isgeneratorfunction(function) or isasyncgenfunction(function)):
        decorator = "asynccontextmanager" if isasyncgenfunction(function) else "contextmanager"
        raise BadHandler(f"{name_of(function)} is only a generator; put @{decorator} above it")
    if isasyncgenfunction(made_by):
        return True
    if isgeneratorfunction(made_by):
        return False
    if isinstance(made_by, type) and hasattr(made_by, "__exit__"):
        return False
    if isinstance(made_by, type) and hasattr(made_by, "__aexit__"):
        return True
    raise BadHandler(
        f"{name_of(function)} is no context manager; write a generator function with @contextmanager or "
        "@asynccontextmanager, or pass a class with __enter__ and __exit__"
    )


def plain_ones(openers: Iterable[Opener]) -> list[Callable[[], AbstractContextManager[Any]]]:
    return [cast(Callable[[], AbstractContextManager[Any]], one) for one in openers if not is_asynchronous(one)]


def asynchronous_ones(openers: Iterable[Opener]) -> list[Callable[[], AbstractAsyncContextManager[Any]]]:
    return [cast(Callable[[], AbstractAsyncContextManager[Any]], one) for one in openers if is_asynchronous(one)]


@contextmanager
def opened(openers: Iterable[Opener], stores: Sequence[Values]) -> Iterator[None]:
    """Enter the plain ones of these openers, and keep their values in all the stores until the end of the block."""
    with ExitStack() as stack:
        for opener in plain_ones(openers):
            with _named(opener):
                value = stack.enter_context(opener())
            _keep(opener, value, stores, stack)
        yield


async def open_asynchronous(openers: Iterable[Opener], stores: Sequence[Values], stack: AsyncExitStack) -> None:
    """Enter the asynchronous ones of these openers, and keep their values in all the stores until the stack is left."""
    for opener in asynchronous_ones(openers):
        with _named(opener):
            value = await stack.enter_async_context(opener())
        _keep(opener, value, stores, stack)


@contextmanager
def _named(opener: Opener) -> Iterator[None]:
    """Say which opener has failed."""
    try:
        yield
    except Exception as error:
        raise ResourceFailed(f"{name_of(opener)} could not be opened: {described(error)}") from error


def _keep(opener: Opener, value: Any, stores: Sequence[Values], stack: ExitStack | AsyncExitStack) -> None:
    for store in stores:
        store[opener] = value
        stack.callback(store.pop, opener, None)


class Resources:
    """The resources of one run of a worker, in the process of the worker."""

    def __init__(self, openers: Iterable[Opener], stores: Sequence[Values]) -> None:
        """`stores` receive the values."""
        self._openers = list(dict.fromkeys(openers))
        self._stores = stores
        # Set when the thread of the plain ones has to close them.
        self._over = threading.Event()
        # Each of these has a result when the resources of that kind are open, or an error, and when they are closed.
        self._plain_open: Future[None] = Future()
        self._plain_closed: Future[None] = Future()
        self._asynchronous_open: Future[None] = Future()
        self._asynchronous_closed: Future[None] = Future()
        # Has a text when an asynchronous resource has ended although handlers may still run.
        self.lost: Future[str] = Future()
        # Whether there are asynchronous ones, which need somebody to call `hold`, and plain ones.
        self.needs_loop = bool(asynchronous_ones(self._openers))
        self._needs_thread = bool(plain_ones(self._openers))
        self._has_begun = False

    def begin(self) -> None:
        """Begin to open the plain resources. From here on `hold` must be called, if there are asynchronous ones."""
        self._has_begun = True
        if self._needs_thread:
            threading.Thread(target=self._hold_plain, name="wakeq-resources", daemon=True).start()

    async def wait_until_open(self) -> None:
        """Return when all are open; raise the error of one that could not be opened."""
        if self._needs_thread:
            await asyncio.shield(asyncio.wrap_future(self._plain_open))
        if self.needs_loop:
            await asyncio.shield(asyncio.wrap_future(self._asynchronous_open))

    def _hold_plain(self) -> None:
        try:
            with opened(self._openers, self._stores):
                self._plain_open.set_result(None)
                self._over.wait()
        except BaseException as error:
            self._failed(self._plain_open, error)
        self._plain_closed.set_result(None)

    async def hold(self, over: asyncio.Event, start_no_more: Callable[[], None]) -> None:
        """Hold the asynchronous resources open until the event is set.

        If one of them ends before, `start_no_more` is called: a handler that begins now would miss its value.
        """
        failure: BaseException | None = None
        try:
            async with AsyncExitStack() as stack:
                await open_asynchronous(self._openers, self._stores, stack)
                self._asynchronous_open.set_result(None)
                try:
                    await over.wait()
                # A task in the background of a resource has failed: asyncio.TaskGroup then cancels its owner.
                except asyncio.CancelledError:
                    start_no_more()
                    self.lost.set_result(self._lost_text())
                    raise
        except BaseException as error:
            failure = error
        if self.lost.done():
            log.error("%s; the worker stops", self.lost.result(), exc_info=failure)
        elif failure is not None or not self._asynchronous_open.done():
            self._failed(self._asynchronous_open, failure or ResourceFailed(self._lost_text()))
        self._asynchronous_closed.set_result(None)

    def _lost_text(self) -> str:
        names = [name_of(one) for one in asynchronous_ones(self._openers)]
        which = f"resource {names[0]}" if len(names) == 1 else f"one of the resources {', '.join(names)}"
        return f"{which} ended while the worker ran"

    def _failed(self, opening: "Future[None]", error: BaseException) -> None:
        if opening.done():
            log.error("a resource could not be closed: %r", error, exc_info=error)
        else:
            log.error("the worker does not start: %s", error, exc_info=error.__cause__ or error)
            opening.set_exception(error)

    async def close(self, *, is_urgent: bool) -> None:
        """Wait until all are closed, but not for ever. The pool must be stopped, after which `hold` returns."""
        if not self._has_begun:
            return
        # One that still opens is not waited for.
        is_opening = (self._needs_thread and not self._plain_open.done()) or (
            self.needs_loop and not self._asynchronous_open.done()
        )
        timeout_s = URGENT_CLOSE_S if is_urgent or is_opening else CLOSE_S
        try:
            async with asyncio.timeout(timeout_s):
                if self.needs_loop:
                    await asyncio.shield(asyncio.wrap_future(self._asynchronous_closed))
                self._over.set()
                if self._needs_thread:
                    await asyncio.shield(asyncio.wrap_future(self._plain_closed))
        except TimeoutError:
            log.warning("not waiting any longer for resources to close, after %g s", timeout_s)
        finally:
            self._over.set()
