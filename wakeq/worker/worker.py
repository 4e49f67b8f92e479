"""Worker: the tasks of a program, and the start and stop of the thread that serves their queues.

    worker = Worker("127.0.0.1:2601", concurrency=8)

    @worker.task("emails", timeout=60, retry=Retry(max=5, backoff="exponential"))
    def send(to: str) -> None: ...

    worker.run()

To define tasks and to publish them needs no running worker: a web server imports the same module and only publishes.
"""

import math
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from inspect import iscoroutinefunction
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from wakeq.client.aio import AsyncClient
from wakeq.client.arguments.spans import Span
from wakeq.client.connection import Tls, refuse_on_loop
from wakeq.client.identity import of_worker
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.names import check_name
from wakeq.protocol.wire.worker import codec as wire
from wakeq.worker import metrics
from wakeq.worker.engine.engine import Engine
from wakeq.worker.engine_thread import EngineThread
from wakeq.worker.hooks import EventListener, Hooks, Middleware
from wakeq.worker.listeners import Listeners
from wakeq.worker.outcome import RETRY, Retry
from wakeq.worker.parameters import BadHandler
from wakeq.worker.pools.coroutines import CoroutinePool
from wakeq.worker.pools.pool import FinishedJobs, Pool
from wakeq.worker.pools.threads import ThreadPool
from wakeq.worker.publishing import Outbox, SharedClient
from wakeq.worker.resources import Opener, Resources, is_asynchronous
from wakeq.worker.schedule import Schedule, Timetable, read_moments
from wakeq.worker.signals import StopSignals, refuse_in_child
from wakeq.worker.task import Mode, Publisher, Task, check_retry, checked_times, mode_of

if TYPE_CHECKING:
    from wakeq.client.blocking import Client

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A", bound=Opener)
M = TypeVar("M", bound=Middleware)
L = TypeVar("L", bound=EventListener)

CONCURRENCY = 8
# Messages for each slot, while handlers are short.
PREFETCH = 64
GRACE_S = 25.0
TIMEOUT_S = 60
MAX_RUN_S = 3600.0


class Worker:
    """Serves queues, each with one task."""

    def __init__(
        self,
        address: str | None = None,
        *,
        concurrency: int = CONCURRENCY,
        prefetch: int = PREFETCH,
        grace: float = GRACE_S,
        trace_parent: bool = False,
        token: str | None = None,
        tls: Tls = None,
        name: str | None = None,
    ) -> None:
        """Serve queues of the broker at `address`; default WAKEQ_BROKER, else 127.0.0.1:2601.

        `concurrency` handlers run at once in threads, as many as coroutines, and as many in processes. For each of
        them up to `prefetch` messages are fetched ahead, but only while handlers take less than 50 ms. When the worker
        stops, running handlers have `grace` seconds to end. With `trace_parent` the span of a handler is a child of the
        publisher's span instead of being linked to it. `token` and `tls` are those of Client. Operators see the worker
        under `name`, by default under the name of the program.
        """
        if concurrency < 1:
            raise ValueError(f"Worker: concurrency is {concurrency}; it takes at least 1 to work")
        if prefetch < 0:
            raise ValueError(f"Worker: prefetch is {prefetch}; it is a number of messages, 0 or more")
        self.address = address
        # How operators see this worker; None stands for the name of the program.
        self.name = name
        self.tasks: dict[str, Task[..., Any]] = {}
        self.schedules: list[Schedule] = []
        self.hooks = Hooks()
        # May be changed until the worker runs.
        self.concurrency = concurrency
        # Called in each spawned process, which shares no state with this one.
        self.process_set_up: Callable[[], None] | None = None
        # Called on the thread of the engine, with the broker's address, when the worker begins to fetch.
        self.ready: Callable[[str], None] | None = None
        self._prefetch = prefetch
        self._grace_s = grace
        self._trace_parent = trace_parent
        self._token = token
        self._tls = tls
        # Replaces the shared client in tests.
        self._outbox: Outbox | None = None
        self._shared_client = SharedClient(self._connect)
        # The workers whose tasks this one serves: itself, or those that it joins.
        self._members: list[Worker] = [self]
        self._engine_thread: EngineThread | None = None

    @classmethod
    def joined(cls, workers: Sequence["Worker"]) -> "Worker":
        """Return one worker that serves the tasks and schedules of all these; raise BadHandler if that is impossible.

        It runs with the largest concurrency and grace of theirs, and with the smallest prefetch. Each task publishes as
        before, with the connection of its own worker.
        """
        first = workers[0]
        if len(workers) == 1:
            return first
        made = cls(
            first.address,
            concurrency=max(worker.concurrency for worker in workers),
            prefetch=min(worker._prefetch for worker in workers),
            grace=max(worker._grace_s for worker in workers),
            token=first._token,
            tls=first._tls,
            name=next((worker.name for worker in workers if worker.name), None),
        )
        made._members = list(workers)
        for worker in workers:
            if (worker.address, worker._token, worker._tls) != (first.address, first._token, first._tls):
                raise BadHandler(
                    f"the worker of {', '.join(first.tasks)} and that of {', '.join(worker.tasks)} have different "
                    "brokers, tokens or TLS; run each of them as MODULE:WORKER, in a process of its own"
                )
            for queue, task in worker.tasks.items():
                if queue in made.tasks:
                    raise BadHandler(
                        f"{queue} has two handlers, {made.tasks[queue]!r} and {task!r}; a queue has one task"
                    )
                made.tasks[queue] = task
            made.schedules += worker.schedules
        return made

    # Tasks --------------------------------------------------------------------------------------------------

    def task(
        self,
        queue: str,
        *,
        timeout: Span = TIMEOUT_S,
        retry: Retry | None = RETRY,
        max_run: Span = MAX_RUN_S,
        mode: Mode | None = None,
    ) -> Callable[[Callable[P, R]], Task[P, R]]:
        """Make a function the handler of a queue. The name of the queue is also the name of the task.

        `timeout`: if the worker is silent for so many seconds, the message is redelivered. A handler may run for
        longer, up to `max_run`. `retry` says how often and when to try again, by default 20 times, after 1, 2, 4 ...
        seconds up to an hour; with None the policy of the queue decides. `mode`: a plain function runs in a thread, or
        with "process" in a process of its own; an `async def` runs on a loop.
        """
        if not isinstance(queue, str):
            raise BadHandler(f"worker.task needs the name of a queue, as in @worker.task('emails'); got {queue!r}")
        check_name(queue)
        timeout_s, max_run_s = checked_times(queue, timeout=timeout, max_run=max_run)
        check_retry(queue, retry)

        def decorate(handler: Callable[P, R]) -> Task[P, R]:
            if queue in self.tasks:
                raise BadHandler(f"{queue} has a handler already, {self.tasks[queue]!r}; a queue has one task")
            task = Task(
                handler,
                queue,
                self._client,
                timeout=timeout_s,
                max_run=max_run_s,
                retry=retry,
                mode=mode_of(handler, mode),
                trace_parent=self._trace_parent,
                hooks=self.hooks,
            )
            self.tasks[queue] = task
            return task

        return decorate

    def schedule(
        self,
        call: Publisher[...],
        when: str | int | timedelta,
        *,
        zone: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Publish a task on a schedule while this worker runs: once for each moment, however many instances run.

        `when` is a cron text with five fields, `"30 6 * * mon-fri"`, in the time zone `zone` (default UTC), or a whole
        number of seconds, or a timedelta. `arguments` are those of the call, by name; for options, schedule
        `task.options(...)`. A moment that no instance could publish within ten minutes is skipped; an instance that
        starts catches up on the last moment only. A worker that ends by itself (drain, limit) publishes no schedules.
        """
        if self._engine_thread is not None:
            raise RuntimeError("this worker is running; add its schedules before it runs")
        if not isinstance(call, Publisher):
            raise TypeError(f"{call!r} is not a task; schedule a function with @worker.task, or its .options(...)")
        if self.tasks.get(call.task.queue) is not call.task:
            raise TypeError(f"{call.task!r} is a task of another worker; schedule it there")
        schedule = Schedule(call, dict(arguments or {}), read_moments(when, zone))
        schedule.check()
        self.schedules.append(schedule)

    # Hooks -----------------------------------------------------------------------------------------------------

    def lifespan(self, opener: A) -> A:
        """Enter a context manager when this worker starts, before its first message, and leave it when it has stopped.

        Decorates a function with @contextmanager or @asynccontextmanager; an asynchronous one runs on the loop of the
        `async def` handlers. If it raises at the start, so does the worker. For a value that handlers use, see
        `resource`.
        """
        self._refuse_running("lifespans")
        is_asynchronous(opener)
        self.hooks.lifespans.append(opener)
        return opener

    def middleware(self, function: M) -> M:
        """Enter a context manager around each call of a handler of this worker, where the handler runs.

        Decorates a function with @contextmanager or @asynccontextmanager that takes the `Current` message. The first
        one is the outermost. An asynchronous one requires that all tasks are `async def`.
        """
        self._refuse_running("middleware")
        is_asynchronous(function)
        self.hooks.middleware.append(function)
        return function

    def listener(self, function: L) -> L:
        """Call a function with `Began` and `Ended` for each message, in the process of the worker.

        All listeners are called by one thread, one after the other; they delay no handler.
        """
        self._refuse_running("listeners")
        if not callable(function) or iscoroutinefunction(function):
            raise BadHandler(f"{function!r} cannot be a listener; it is a plain function with one parameter, the event")
        self.hooks.listeners.append(function)
        return function

    def _refuse_running(self, hooks: str) -> None:
        if self._engine_thread is not None:
            raise RuntimeError(f"this worker is running; add its {hooks} before it runs")

    @contextmanager
    def replacing(self, resources: Mapping[Opener, Any]) -> Iterator[None]:
        """Pass these values to handlers in place of resources until the end of the block, as tests do.

        The keys are the functions that `resource` takes; they are not called.
        """
        before = self.hooks.replaced
        self.hooks.replaced = {**before, **resources}
        try:
            yield
        finally:
            self.hooks.replaced = before

    @contextmanager
    def publishing_to(self, outbox: Outbox) -> Iterator[None]:
        """Publish with another outbox until the end of the block, as tests do."""
        before, self._outbox = self._outbox, outbox
        try:
            yield
        finally:
            self._outbox = before

    def _client(self) -> Outbox:
        """Return the outbox that publishes the messages of the tasks."""
        return self._shared_client if self._outbox is None else self._outbox

    def _connect(self) -> "Client":
        # A worker that publishes nothing does not need this import.
        from wakeq.client.blocking import Client

        return Client(self.address, token=self._token, tls=self._tls)

    # Running ---------------------------------------------------------------------------------------------------

    def run(self, *, drain: bool = False, limit: int | None = None) -> int:
        """Work until SIGTERM or SIGINT. Exit with the documented status if handlers were cut short.

        With `drain` the worker also ends when no queue has a message that is due and all fetched messages are done;
        with `limit`, when so many messages are done. Return how many messages were handled.

        Must be called in the main thread. The first signal stops the worker as `stop` does, the second one at once.
        """
        refuse_on_loop("worker.run()", "call it outside of the loop, or start the worker before the loop")
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "worker.run() handles signals, which is possible in the main thread only; in another thread call "
                "worker.start(), and worker.stop() at the end"
            )
        if limit is not None and limit < 1:
            raise ValueError(f"Worker.run: limit is {limit}; it is a number of messages, 1 or more")
        try:
            refuse_in_child()
            # Known before the signals are handled, so that even the earliest signal can stop it.
            engine_thread = self._prepare(drain=drain, limit=limit)
            try:
                with StopSignals(self._signalled) as signals:
                    engine_thread.launch()
                    left = signals.wait_for(engine_thread.ended)
            finally:
                self._engine_thread = None
                self._close_clients()
        except WakeqError as error:
            print(f"wakeq: {error}", file=sys.stderr)
            sys.exit(error.exit_status)
        signals.exit(left)
        return engine_thread.handled

    def start(self) -> None:
        """Work in the background; BrokerUnreachable if no broker answers."""
        refuse_on_loop("worker.start()", "write `await asyncio.to_thread(worker.start)`, and the same for worker.stop")
        engine_thread = self._prepare()
        try:
            engine_thread.start()
        except BaseException:
            self._engine_thread = None
            raise

    def stop(self, grace: float | None = None) -> int:
        """Stop, and return how many messages were released before their handlers had ended.

        This includes messages whose outcome could not be reported because the broker was away.
        """
        if self._engine_thread is None:
            return 0
        engine_thread, self._engine_thread = self._engine_thread, None
        engine_thread.stop(self._grace_s if grace is None else grace)
        try:
            return engine_thread.wait()
        finally:
            self._close_clients()

    def _close_clients(self) -> None:
        for worker in self._members:
            worker._shared_client.close_when_unused()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    def _prepare(self, *, drain: bool = False, limit: int | None = None) -> EngineThread:
        """Make the engine thread without starting it, so that a signal can stop it even while it connects."""
        if self._engine_thread is not None:
            raise RuntimeError("this worker is running already")
        self.check()
        ends_by_itself = drain or limit is not None
        self._engine_thread = EngineThread(
            lambda: self._make_engine(drain=drain, limit=limit),
            grace_s=self._grace_s,
            timetable=Timetable(self.schedules) if self.schedules and not ends_by_itself else None,
            ready=self.ready,
        )
        return self._engine_thread

    def _signalled(self, count: int) -> None:
        """Handle a signal, in the main thread, between any two of its steps."""
        if self._engine_thread is not None:
            if count == 1:
                self._engine_thread.stop(self._grace_s)
            else:
                self._engine_thread.hurry()

    def check(self) -> None:
        """Raise BadHandler if a task could never work."""
        if not self.tasks:
            raise BadHandler("this worker has no tasks; decorate a function with @worker.task(queue)")
        for task in self.tasks.values():
            task.check()
            if task.mode == "process":
                from wakeq.worker.pools.processes import check_importable

                check_importable(task)

    def _make_client(self, engine: "Engine[AsyncClient]", *, publishes_schedules: bool) -> AsyncClient:
        def identity() -> wire.Hello:
            schedules = [schedule.facts() for schedule in self.schedules] if publishes_schedules else []
            return of_worker(self.name, concurrency=self.concurrency, tasks=self.tasks, schedules=schedules)

        return AsyncClient(
            self.address,
            listener=engine,
            reconnect_for_s=math.inf,
            token=self._token,
            tls=self._tls,
            introduce=identity,
        )

    def _make_engine(self, *, drain: bool, limit: int | None) -> "Engine[AsyncClient]":
        tasks = list(self.tasks.values())
        resources = self._make_resources()
        return Engine(
            partial(self._make_client, publishes_schedules=not drain and limit is None),
            partial(self._make_pool, resources),
            tasks,
            prefetch=self._prefetch,
            drain=drain,
            limit=limit,
            resources=resources,
            listeners=self._make_listeners(),
        )

    def _make_resources(self) -> Resources | None:
        """Return the resources that the tasks of this process ask for, and the lifespans; None if there are none."""
        hooks = [worker.hooks for worker in self._members]
        wanted = [lifespan for one in hooks for lifespan in one.lifespans]
        # A process of its own opens its own resources.
        wanted += [one for task in self.tasks.values() if task.mode != "process" for one in task.missing_openers()]
        return Resources(wanted, [one.values for one in hooks]) if wanted else None

    def _make_listeners(self) -> Listeners | None:
        """Return what tells the listeners and the metrics; None if there are none."""
        measures = [listener] if (listener := metrics.listener()) else []
        return Listeners(measures) if measures or any(worker.hooks.listeners for worker in self._members) else None

    def _make_pool(self, resources: Resources | None, mode: Mode, returns: FinishedJobs) -> Pool:
        match mode:
            case "thread":
                return ThreadPool(self.concurrency, returns)
            case "coroutine":
                return CoroutinePool(self.concurrency, returns, resources.hold if resources else None)
            case "process":
                from wakeq.worker.pools.processes import ProcessPool

                return ProcessPool(self.concurrency, returns, self.process_set_up)
