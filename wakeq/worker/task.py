"""Task: a handler with its queue.  Called it is the handler; published it is a message.

    send(to="a@b.c")                          calls it, here and now
    send.publish(to="a@b.c")                  queues it; the uid of the message
    await send.publish_async(to="a@b.c")      the same from a coroutine
    send.options(delay=60).publish(...)       the same, later

One task serves one queue, and the queue's name is its name.  The decorator keeps the types of the handler: what a
type checker refuses to call it also refuses to publish.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeAlias, TypeVar

from wakeq.client.message import Body, Message, bytes_of_body
from wakeq.client.on_loop import refuse_on_loop
from wakeq.protocol.wire.worker import codec as wire
from wakeq.protocol.wire.worker.commands import SECONDS_MAX, TIMEOUT_S_MIN
from wakeq.worker import tracing
from wakeq.worker.parameters import BadHandler, Parameters, name_of
from wakeq.worker.publish_threads import run_in_publish_thread
from wakeq.worker.retry import Retry

if TYPE_CHECKING:
    from wakeq.client.aio import AsyncClient

P = ParamSpec("P")
R = TypeVar("R")

Mode: TypeAlias = Literal["thread", "coroutine", "process"]

INSTEAD_OF_YIELD = "do the work in the function itself, without `yield`; what is to follow goes to current().then(...)"


class Outbox(Protocol):
    """Who publishes for a task: a Client, or what a test puts in its place."""

    def publish(
        self,
        queue: str,
        body: Body,
        *,
        delay: int = 0,
        timeout: int | None = None,
        expires: int = 0,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> str: ...

    def publish_many(
        self,
        queue: str,
        bodies: Iterable[Body],
        *,
        delay: int = 0,
        timeout: int | None = None,
        expires: int = 0,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> list[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a message of a task is published; spans are seconds."""

    delay: int = 0
    expires: int = 0  # 0: never
    priority: int = 0  # the smallest first
    headers: Mapping[str, str] | None = None
    id: str | None = None  # repeated within 15 minutes it is stored once


class Publisher(Generic[P]):
    """What can be published with the arguments of a handler: a task, or a task with options."""

    def __init__(self, task: "Task[P, Any]", options: Options) -> None:
        self.task = task
        self.settings = options

    def publish(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Queue one call of the handler and return the uid of its message, which is stored then."""
        self._refuse_on_loop("publish")
        settings = self.settings
        body = self.task.body_of(args, kwargs)
        return self.task.outbox().publish(
            self.task.queue,
            body,
            delay=settings.delay,
            timeout=self.task.timeout,
            expires=settings.expires,
            priority=settings.priority,
            headers=tracing.outgoing(settings.headers),
            id=settings.id,
        )

    async def publish_async(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """The same for a coroutine, on any loop, which goes on while a thread waits for the broker.

        If it is cancelled the message may have been stored.
        """
        return await run_in_publish_thread(lambda: self.publish(*args, **kwargs))

    async def publish_by(
        self, client: "AsyncClient", arguments: Mapping[str, Any], *, id: str, more_headers: Mapping[str, str]
    ) -> str:
        """Publish a call by a connection of this loop, under an id and with these headers too."""
        settings = self.settings
        return await client.publish(
            self.task.queue,
            self.task.body_of((), arguments),
            delay=settings.delay,
            timeout=self.task.timeout,
            expires=settings.expires,
            priority=settings.priority,
            headers=tracing.outgoing({**(settings.headers or {}), **more_headers}),
            id=id,
        )

    def publish_many(self, calls: Iterable[Mapping[str, Any]]) -> list[str]:
        """Queue many calls, each a mapping of arguments by name: all of them or none.  Return the uids."""
        self._refuse_on_loop("publish_many")
        settings = self.settings
        bodies = [self.task.body_of((), mapping_of(arguments)) for arguments in calls]
        return self.task.outbox().publish_many(
            self.task.queue,
            bodies,
            delay=settings.delay,
            timeout=self.task.timeout,
            expires=settings.expires,
            priority=settings.priority,
            headers=tracing.outgoing(settings.headers),
            id=settings.id,
        )

    async def publish_many_async(self, calls: Iterable[Mapping[str, Any]]) -> list[str]:
        """The same for a coroutine, as publish_async."""
        return await run_in_publish_thread(lambda: self.publish_many(calls))

    def _refuse_on_loop(self, method: str) -> None:
        """Also with an outbox that never waits: a test must not pass what stops a loop later."""
        name = name_of(self.task.handler)
        refuse_on_loop(f"{name}.{method}", f"write `await {name}.{method}_async(...)`")

    def followup(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> wire.Followup:
        """The message as part of an acknowledgement."""
        settings = self.settings
        return _followup(
            self.task.queue,
            self.task.body_of(args, kwargs),
            timeout=self.task.timeout,
            delay=settings.delay or None,
            expires=settings.expires or None,
            priority=settings.priority or None,
            headers=tracing.outgoing(settings.headers),
        )


class Task(Publisher[P], Generic[P, R]):
    """A handler, the queue it serves, and how."""

    def __init__(
        self,
        handler: Callable[P, R],
        queue: str,
        outbox: Callable[[], Outbox],
        *,
        timeout: int,
        max_run: float,
        retry: Retry | None,
        mode: Mode,
        trace_parent: bool = False,
    ) -> None:
        super().__init__(self, Options())
        self.handler = handler
        self.queue = queue
        self.outbox = outbox
        self.timeout = timeout
        self.max_run = max_run
        self.retry = retry
        self.mode: Mode = mode
        self.trace_parent = trace_parent
        self._parameters = Parameters(handler)
        update_wrapper(self, handler, updated=())  # its name and words; its attributes are its own

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.handler(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.queue}: {self.handler.__module__}.{name_of(self.handler)}>"

    def options(
        self,
        *,
        delay: int = 0,
        expires: int = 0,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> Publisher[P]:
        """The same task, to be published with these options."""
        return Publisher(self, Options(delay=delay, expires=expires, priority=priority, headers=headers, id=id))

    @cached_property
    def takes_message(self) -> bool:
        """Whether the handler takes the raw message, not the fields of its body."""
        kinds = list(self._parameters.types.values())
        return kinds == [Message]

    def body_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The body that stands for a call."""
        if self.takes_message:
            raise TypeError(f"{self!r} takes any message; publish to it with Client.publish({self.queue!r}, body)")
        return self._parameters.encode(args, kwargs)

    def arguments_of(self, body: bytes) -> dict[str, Any]:
        """The call that a body stands for.  Raise Misfit if it does not fit the handler."""
        return self._parameters.decode(body)

    def check(self) -> None:
        """Raise BadHandler if no message could ever be handled."""
        if not self.takes_message:
            self._parameters.check()


def check_settings(queue: str, *, timeout: object, retry: object, max_run: object) -> None:
    """Raise ValueError or TypeError for what cannot be meant: where it is said, not when the first message fails."""
    if not isinstance(timeout, int) or not TIMEOUT_S_MIN <= timeout <= SECONDS_MAX:
        raise ValueError(f"task {queue}: timeout is {timeout!r}; it is {TIMEOUT_S_MIN} to {SECONDS_MAX} whole seconds")
    if not isinstance(max_run, int | float) or not max_run > 0:
        raise ValueError(f"task {queue}: max_run is {max_run!r}; it is a number of seconds, more than 0")
    if retry is not None and not isinstance(retry, Retry):
        raise TypeError(f"task {queue}: retry is {retry!r}; write Retry(max=5), or None to leave it to the queue")


def mode_of(handler: Callable[..., object], mode: Mode | None) -> Mode:
    """How a handler is run: as it says, or as what it is.  Raise BadHandler if a call of it can run nothing."""
    if isgeneratorfunction(handler) or isasyncgenfunction(handler):
        raise BadHandler(
            f"{name_of(handler)} has a `yield`, so a call makes a generator and runs nothing; {INSTEAD_OF_YIELD}"
        )
    fitting: tuple[Mode, ...] = ("coroutine",) if iscoroutinefunction(handler) else ("thread", "process")
    if mode is None:
        return fitting[0]
    if mode not in fitting:
        raise BadHandler(f"{name_of(handler)} cannot run with mode={mode!r}; its mode is {' or '.join(fitting)}")
    return mode


def mapping_of(arguments: object) -> Mapping[str, Any]:
    """One call of publish_many.  Raise TypeError if it is none."""
    if not isinstance(arguments, Mapping):
        raise TypeError(
            f"publish_many takes a mapping of arguments for each call, as {{'to': 'a@b.c'}}; got {arguments!r}"
        )
    return arguments


def followup_of(target: Publisher[Any] | str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> wire.Followup:
    """What is to be published with an acknowledgement: a call of a task, or a body for a queue."""
    if isinstance(target, Publisher):
        return target.followup(args, kwargs)
    (body,) = args
    return _followup(target, bytes_of_body(body), headers=tracing.outgoing(None))


def _followup(queue: str, body: bytes, **fields: Any) -> wire.Followup:
    text, encoding = wire.text_of(body)
    return wire.Followup(qname=queue, message=text, enc=encoding, **fields)
