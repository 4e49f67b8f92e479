"""Hooks: what a program adds around the calls of its handlers; one object for each Worker.

    middleware    context managers around each call, where the handler runs
    listeners     functions that are told of each call, in the process of the worker
    lifespans     openers that are entered at the start of a run, although no handler asks for their values
    values        of the resources that are open now

The objects that a listener gets: Began when a handler begins, Ended with the outcome of its message.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    contextmanager,
)
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from wakeq.client.message import Received
from wakeq.worker.context import Current
from wakeq.worker.outcome import Outcome
from wakeq.worker.parameters import name_of
from wakeq.worker.resources import Opener, Resource, Values, is_asynchronous, opened

if TYPE_CHECKING:
    from wakeq.worker.task import Task

log = logging.getLogger("wakeq.worker")

Middleware: TypeAlias = (
    Callable[[Current], AbstractContextManager[Any]] | Callable[[Current], AbstractAsyncContextManager[Any]]
)


@dataclass(frozen=True, slots=True)
class Began:
    """A handler begins with a message."""

    task: "Task[..., Any]"
    message: Received


@dataclass(frozen=True, slots=True)
class Ended:
    """A handler has ended, or the worker waits for it no longer.

    `outcome` is what the broker is told: Done, Failed (to be retried after `delay_s`, or by the policy of the queue),
    Dead (a dead letter), or Released (to be delivered again, without a failure).
    """

    task: "Task[..., Any]"
    message: Received
    outcome: Outcome
    duration_s: float


Event: TypeAlias = Began | Ended
EventListener: TypeAlias = Callable[[Event], object]


class Hooks:
    """The hooks of one Worker, and the values of its resources."""

    def __init__(self) -> None:
        self.lifespans: list[Opener] = []
        # The first one is the outermost.
        self.middleware: list[Middleware] = []
        self.listeners: list[EventListener] = []
        self.values: Values = {}
        # Values that tests put in place of resources, which are not opened then.
        self.replaced: Values = {}
        # Where no Worker runs: resources are opened when a handler first asks for them, and closed with this stack.
        self._on_demand: ExitStack | None = None

    def enter_middleware(self, current: Current, stack: ExitStack) -> None:
        """Enter the middleware around the call of a plain handler.

        The caller has the stack and calls the handler in its block: middleware that suppresses an error then ends the
        block, also if the error comes from the middleware inside of it and no handler has been called.
        """
        for function in self.middleware:
            stack.enter_context(cast(AbstractContextManager[Any], function(current)))

    async def enter_middleware_async(self, current: Current, stack: AsyncExitStack) -> None:
        """Enter the middleware around the call of a coroutine handler."""
        for function in self.middleware:
            made = function(current)
            if isinstance(made, AbstractAsyncContextManager):
                await stack.enter_async_context(made)
            else:
                stack.enter_context(made)

    def value_of(self, resource: Resource) -> Any:
        """Return the value of a resource that is open."""
        opener = resource.opener
        if opener in self.replaced:
            return self.replaced[opener]
        if opener not in self.values and self._on_demand is not None and not is_asynchronous(opener):
            self._on_demand.enter_context(opened([opener], [self.values]))
        if opener in self.values:
            return self.values[opener]
        raise RuntimeError(f"{name_of(opener)} is not open: a Worker that runs opens it, or wakeq.testing")

    @contextmanager
    def opening_on_demand(self) -> Iterator[None]:
        """Open plain resources when a handler first asks for them, and close them at the end of the block."""
        with ExitStack() as stack:
            before, self._on_demand = self._on_demand, stack
            try:
                yield
            finally:
                self._on_demand = before

    def tell(self, event: Event) -> None:
        """Call all listeners."""
        for listener in self.listeners:
            tell_one(listener, event)


def tell_one(listener: EventListener, event: Event) -> None:
    """Call a listener. Whatever it raises is logged and costs nothing else, even sys.exit()."""
    try:
        listener(event)
    except BaseException as error:
        # In the main thread tests call listeners: Ctrl-C must end them.
        if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
            raise
        log.exception("%s: the listener %s failed", event.message.queue, name_of(listener))
