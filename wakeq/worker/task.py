"""Task: a handler and its queue. A call of the task is a call of the handler; a publish makes a message.

    send(to="a@b.c")                          calls the handler, here and now
    send.publish(to="a@b.c")                  publishes a message for the handler, returns its uid
    await send.publish_async(to="a@b.c")      the same from a coroutine
    send.options(delay=60).publish(...)       the same, delivered after 60 s

One task serves one queue, and the name of the queue is the name of the task. The decorator keeps the types of the
handler: a type checker accepts the same arguments for a call and for a publish.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, update_wrapper
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar

from wakeq.client.arguments.spans import Span, delay_until, seconds
from wakeq.client.connection import refuse_on_loop
from wakeq.client.message import Message, bytes_of_body
from wakeq.protocol.errors import BadField
from wakeq.protocol.wire.worker import codec as wire
from wakeq.protocol.wire.worker.commands import SECONDS_MAX, TIMEOUT_S_MIN
from wakeq.worker import metrics, tracing
from wakeq.worker.hooks import Hooks
from wakeq.worker.outcome import Retry
from wakeq.worker.parameters import BadHandler, Parameters, name_of
from wakeq.worker.publishing import Outbox, run_in_publish_thread
from wakeq.worker.resources import Opener, is_asynchronous, resources_of

if TYPE_CHECKING:
    from wakeq.client.aio import AsyncClient

P = ParamSpec("P")
R = TypeVar("R")

Mode: TypeAlias = Literal["thread", "coroutine", "process"]

# How Celery, Dramatiq, taskiq and others call a publish.
NAMES_ELSEWHERE = {"apply_async", "defer", "delay", "enqueue", "kiq", "send", "send_with_options"}

INSTEAD_OF_YIELD = "do the work in the function itself, without `yield`; publish follow-ups with current().then(...)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a message of a task is published; spans are seconds, or timedeltas."""

    delay: Span = 0
    # The moment when the message is due, in place of a delay.
    at: datetime | None = None
    # 0: never.
    expires: Span = 0
    # The smallest is delivered first.
    priority: int = 0
    headers: Mapping[str, str] | None = None
    # Publishes with the same id within 15 minutes are stored once.
    id: str | None = None


class Publisher(Generic[P]):
    """Publishes messages with the arguments of a handler: a task, or a task with options."""

    def __init__(self, task: "Task[P, Any]", options: Options) -> None:
        self.task = task
        self.settings = options

    def publish(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Publish a message for one call of the handler and return its uid. The message is stored then."""
        self._refuse_on_loop("publish")
        body = self.task.body_of(args, kwargs)
        with metrics.sending(self.task.queue, 1):
            return self.task.outbox().publish(self.task.queue, body, **self._options())

    async def publish_async(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Publish from a coroutine, on any loop. A thread waits for the broker meanwhile.

        After a cancellation the message may have been stored.
        """
        return await run_in_publish_thread(lambda: self.publish(*args, **kwargs))

    async def publish_by(
        self, client: "AsyncClient", arguments: Mapping[str, Any], *, id: str, more_headers: Mapping[str, str]
    ) -> str:
        """Publish with a client of this loop, under an id and with additional headers."""
        headers = {**(self.settings.headers or {}), **more_headers}
        options = self._options() | {"headers": tracing.outgoing(headers), "id": id}
        with metrics.sending(self.task.queue, 1):
            return await client.publish(self.task.queue, self.task.body_of((), arguments), **options)

    def publish_many(self, calls: Iterable[Mapping[str, Any]]) -> list[str]:
        """Publish messages for many calls, each a mapping of arguments by name: all or none. Return the uids."""
        self._refuse_on_loop("publish_many")
        bodies = [self.task.body_of((), checked_arguments(arguments)) for arguments in calls]
        with metrics.sending(self.task.queue, len(bodies)):
            return self.task.outbox().publish_many(self.task.queue, bodies, **self._options())

    async def publish_many_async(self, calls: Iterable[Mapping[str, Any]]) -> list[str]:
        """Publish many from a coroutine, as publish_async does."""
        return await run_in_publish_thread(lambda: self.publish_many(calls))

    def _options(self) -> dict[str, Any]:
        """Return the options of a publish."""
        settings = self.settings
        return {
            "delay": delay_until(settings.delay, settings.at),
            "timeout": self.task.timeout,
            "expires": settings.expires,
            "priority": settings.priority,
            "headers": tracing.outgoing(settings.headers),
            "id": settings.id,
        }

    def _refuse_on_loop(self, method: str) -> None:
        """Refuse a call on a loop even if the outbox never waits: code that blocks a loop must fail in tests, too."""
        name = name_of(self.task.handler)
        refuse_on_loop(f"{name}.{method}", f"write `await {name}.{method}_async(...)`")

    # A type checker that saw this method would accept any name.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Say what the names of other libraries are called here."""
            kind = type(self).__name__
            if name not in NAMES_ELSEWHERE:
                raise AttributeError(f"{kind!r} object has no attribute {name!r}")
            task = name_of(self.__dict__["task"].handler) if "task" in self.__dict__ else "task"
            raise AttributeError(
                f"a task of wakeq has no {name!r}: write {task}.publish(...) or, in a coroutine, `await "
                f"{task}.publish_async(...)`; with options, {task}.options(delay=60).publish(...)"
            )

    def followup(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> wire.Followup:
        """Return the message as part of an acknowledgement."""
        settings = self.settings
        return _followup(
            self.task.queue,
            self.task.body_of(args, kwargs),
            timeout=self.task.timeout,
            delay=delay_until(settings.delay, settings.at) or None,
            expires=seconds("expires", settings.expires) or None,
            priority=settings.priority or None,
            headers=tracing.outgoing(settings.headers),
        )


class Task(Publisher[P], Generic[P, R]):
    """A handler, the queue that it serves, and its settings."""

    def __init__(
        self,
        handler: Callable[P, R],
        queue: str,
        outbox: Callable[[], Outbox],
        *,
        timeout: float,
        max_run: float,
        retry: Retry | None,
        mode: Mode,
        trace_parent: bool = False,
        hooks: Hooks | None = None,
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
        self.hooks = Hooks() if hooks is None else hooks
        # By the names of the parameters.
        self.resources = resources_of(handler)
        self._parameters = Parameters(handler, self.resources)
        # Copies the name and docstring of the handler, but not its attributes.
        update_wrapper(self, handler, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.handler(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.queue}: {self.handler.__module__}.{name_of(self.handler)}>"

    def options(
        self,
        *,
        delay: Span = 0,
        at: datetime | None = None,
        expires: Span = 0,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> Publisher[P]:
        """Return a publisher for this task with these options; `at` is the moment when its messages are due."""
        return Publisher(self, Options(delay=delay, at=at, expires=expires, priority=priority, headers=headers, id=id))

    @cached_property
    def takes_message(self) -> bool:
        """Whether the handler takes the raw message instead of the fields of its body."""
        kinds = list(self._parameters.types.values())
        return kinds == [Message]

    def body_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Return the body of a message for a call."""
        if self.takes_message:
            raise TypeError(f"{self!r} takes raw messages; publish with Client.publish({self.queue!r}, body)")
        return self._parameters.encode(args, kwargs)

    def arguments_of(self, body: bytes) -> dict[str, Any]:
        """Return the arguments in a body. Raise InvalidBody if it does not fit the handler."""
        return self._parameters.decode(body)

    def resource_values(self) -> dict[str, Any]:
        """Return the arguments that the worker adds to those of the message."""
        return {name: self.hooks.value_of(resource) for name, resource in self.resources.items()}

    def missing_openers(self) -> list[Opener]:
        """Return the openers of its resources that are not open and not replaced."""
        openers = (resource.opener for resource in self.resources.values())
        return [one for one in openers if one not in self.hooks.values and one not in self.hooks.replaced]

    def check(self) -> None:
        """Raise BadHandler if no message could ever be handled."""
        if not self.takes_message:
            self._parameters.check()
        if self.mode != "coroutine":
            for function in (*self.hooks.middleware, *(resource.opener for resource in self.resources.values())):
                if is_asynchronous(function):
                    raise BadHandler(
                        f"{self!r} is a plain function and cannot use {name_of(function)}, which is asynchronous; make "
                        "the task an `async def`, or give it to a Worker without this hook"
                    )


def checked_times(queue: str, *, timeout: Span, max_run: Span) -> tuple[float, float]:
    """Return both in seconds. Raise ValueError for a wrong one here, not when the first message fails."""
    try:
        timeout_s = seconds("timeout", timeout)
    except BadField:
        timeout_s = 0
    if not TIMEOUT_S_MIN <= timeout_s <= SECONDS_MAX:
        raise ValueError(
            f"task {queue}: timeout is {timeout!r}; it is {TIMEOUT_S_MIN} to {SECONDS_MAX} seconds, or a timedelta"
        )
    max_run_s = max_run.total_seconds() if isinstance(max_run, timedelta) else max_run
    if not isinstance(max_run_s, int | float) or not max_run_s > 0:
        raise ValueError(
            f"task {queue}: max_run is {max_run!r}; it is a number of seconds, more than 0, or a timedelta"
        )
    return timeout_s, max_run_s


def check_retry(queue: str, retry: object) -> None:
    """Raise TypeError if this is not a Retry."""
    if retry is not None and not isinstance(retry, Retry):
        raise TypeError(f"task {queue}: retry is {retry!r}; write Retry(max=5), or None to leave it to the queue")


def mode_of(handler: Callable[..., object], mode: Mode | None) -> Mode:
    """Return the mode of a handler, by default by its kind. Raise BadHandler for a generator function."""
    if isgeneratorfunction(handler) or isasyncgenfunction(handler):
        raise BadHandler(f"{name_of(handler)} has a `yield`, so a call only creates a generator; {INSTEAD_OF_YIELD}")
    fitting: tuple[Mode, ...] = ("coroutine",) if iscoroutinefunction(handler) else ("thread", "process")
    if mode is None:
        return fitting[0]
    if mode not in fitting:
        raise BadHandler(f"{name_of(handler)} cannot run with mode={mode!r}; its mode is {' or '.join(fitting)}")
    return mode


def checked_arguments(arguments: object) -> Mapping[str, Any]:
    """Return the arguments of one call of publish_many. Raise TypeError if they are no mapping."""
    if not isinstance(arguments, Mapping):
        raise TypeError(
            f"publish_many takes a mapping of arguments for each call, as {{'to': 'a@b.c'}}; got {arguments!r}"
        )
    return arguments


def followup_of(target: Publisher[Any] | str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> wire.Followup:
    """Return a follow-up: a call of a task, or a body for a queue."""
    if isinstance(target, Publisher):
        return target.followup(args, kwargs)
    (body,) = args
    return _followup(target, bytes_of_body(body), headers=tracing.outgoing(None))


def _followup(queue: str, body: bytes, **fields: Any) -> wire.Followup:
    text, encoding = wire.text_of(body)
    return wire.Followup(qname=queue, message=text, enc=encoding, **fields)
