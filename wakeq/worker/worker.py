"""Worker: the tasks of a program, and the life of the thread that serves their queues.

    worker = Worker("127.0.0.1:2601", concurrency=8)

    @worker.task("emails", timeout=60, retry=Retry(max=5, backoff="exponential"))
    def send(to: str) -> None: ...

    worker.run()

Defining tasks and publishing them needs no running worker: a web server imports the same module and only publishes.
"""

import math
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from wakeq.client.aio import AsyncClient
from wakeq.client.credentials import Tls
from wakeq.client.on_loop import refuse_on_loop
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.names import check_name
from wakeq.worker.engine.engine import Engine
from wakeq.worker.engine_thread import EngineThread
from wakeq.worker.parameters import BadHandler
from wakeq.worker.pools.coroutines import CoroutinePool
from wakeq.worker.pools.pool import FinishedJobs, Pool
from wakeq.worker.pools.threads import ThreadPool
from wakeq.worker.retry import RETRY, Retry
from wakeq.worker.schedule.cron import read_moments
from wakeq.worker.schedule.timetable import Schedule, Timetable
from wakeq.worker.shared_client import SharedClient
from wakeq.worker.signals import StopSignals, refuse_in_child
from wakeq.worker.task import Mode, Outbox, Publisher, Task, check_settings, mode_of

if TYPE_CHECKING:
    from wakeq.client.blocking import Client

P = ParamSpec("P")
R = TypeVar("R")

CONCURRENCY = 8
PREFETCH = 64  # messages for each place, while handlers are short
GRACE_S = 25.0
TIMEOUT_S = 60
MAX_RUN_S = 3600.0


class Worker:
    """Serves queues: one task for each."""

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
    ) -> None:
        """Serve the queues of the broker at `address`; else of WAKEQ_BROKER, else of 127.0.0.1:2601.

        `concurrency` handlers run at once: in threads, as coroutines and in processes, so many of each.  `prefetch`
        messages at most are fetched ahead for each of them, and only while handlers take less than 50 ms.  At a stop
        handlers have `grace` seconds to end.  With `trace_parent` the span of a handler is a child of the
        publisher's, not linked to it.  `token` and `tls` are those of Client.
        """
        if concurrency < 1:
            raise ValueError(f"Worker: concurrency is {concurrency}; it takes at least 1 to work")
        if prefetch < 0:
            raise ValueError(f"Worker: prefetch is {prefetch}; it is a number of messages, 0 or more")
        self.address = address
        self.tasks: dict[str, Task[..., Any]] = {}
        self.schedules: list[Schedule] = []
        self.concurrency = concurrency  # may be changed until it runs
        self.process_set_up: Callable[[], None] | None = None  # called in each process, which knows nothing of ours
        self._prefetch = prefetch
        self._grace_s = grace
        self._trace_parent = trace_parent
        self._token, self._tls = token, tls
        self._outbox: Outbox | None = None  # in place of a connection of our own
        self._publishing = SharedClient(self._connect)
        self._service: EngineThread | None = None

    # Tasks --------------------------------------------------------------------------------------------------

    def task(
        self,
        queue: str,
        *,
        timeout: int = TIMEOUT_S,
        retry: Retry | None = RETRY,
        max_run: float = MAX_RUN_S,
        mode: Mode | None = None,
    ) -> Callable[[Callable[P, R]], Task[P, R]]:
        """Make a function the handler of a queue; the queue's name is the task's name, and it has no other.

        `timeout`: a worker that is not heard of for so many seconds has lost the message; a handler may run for
        longer, up to `max_run`.  `retry` says how often and when to try again, by default 20 times, after 1, 2, 4 ...
        seconds up to an hour; with None the queue's policy says it.
        `mode`: a plain function runs in a thread, or in a process of its own with "process"; an `async def` on a loop.
        """
        if not isinstance(queue, str):
            raise BadHandler(f"worker.task needs the name of a queue; write @worker.task('emails'), and not {queue!r}")
        check_name(queue)
        check_settings(queue, timeout=timeout, retry=retry, max_run=max_run)

        def decorate(handler: Callable[P, R]) -> Task[P, R]:
            if queue in self.tasks:
                raise BadHandler(f"{queue} has a handler already, {self.tasks[queue]!r}; a queue carries one task")
            task = Task(
                handler,
                queue,
                self._client,
                timeout=timeout,
                max_run=max_run,
                retry=retry,
                mode=mode_of(handler, mode),
                trace_parent=self._trace_parent,
            )
            self.tasks[queue] = task
            return task

        return decorate

    def schedule(
        self,
        call: Publisher[...],
        when: str | int,
        *,
        zone: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Publish a task at its moments while this worker runs: once each, however many instances run.

        `when` is five fields as in cron, `"30 6 * * mon-fri"` by the clocks of `zone` (else UTC), or so many seconds.
        `arguments` are those of the call, by name; what is to be published with options is `task.options(...)`.  A
        moment that no instance could publish for ten minutes is left out; who begins makes up for the last one only.
        A worker that ends by itself (drain, limit) leaves all out.
        """
        if self._service is not None:
            raise RuntimeError("this worker runs already; say what it schedules before it runs")
        if not isinstance(call, Publisher):
            raise TypeError(f"{call!r} is not a task; schedule a function with @worker.task, or its .options(...)")
        if self.tasks.get(call.task.queue) is not call.task:
            raise TypeError(f"{call.task!r} is a task of another worker; schedule it there, or this one's")
        schedule = Schedule(call, dict(arguments or {}), read_moments(when, zone))
        schedule.check()
        self.schedules.append(schedule)

    @contextmanager
    def publishing_to(self, outbox: Outbox) -> Iterator[None]:
        """Publish through this instead of a connection of our own, as tests do."""
        before, self._outbox = self._outbox, outbox
        try:
            yield
        finally:
            self._outbox = before

    def _client(self) -> Outbox:
        """Who publishes for the tasks: a connection of our own, unless there is another outbox."""
        return self._publishing if self._outbox is None else self._outbox

    def _connect(self) -> "Client":
        from wakeq.client.blocking import Client  # a worker that publishes nothing has no second connection

        return Client(self.address, token=self._token, tls=self._tls)

    # Work ---------------------------------------------------------------------------------------------------

    def run(self, *, drain: bool = False, limit: int | None = None) -> int:
        """Work until SIGTERM or SIGINT, and end the process as documented if a handler was not waited for.

        With `drain` it ends also when no queue has anything due and nothing is in hand any more; with `limit` when
        so many messages are done with.  Return how many handlers were run.

        Only for the main thread.  The first signal stops as `stop` does, the second at once.
        """
        refuse_on_loop("worker.run()", "call it outside of the loop, or start the worker before the loop begins")
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "worker.run() listens to signals, which only the main thread can; in another thread say "
                "worker.start(), and worker.stop() in the end"
            )
        if limit is not None and limit < 1:
            raise ValueError(f"Worker.run: limit is {limit}; it is a number of messages, 1 or more")
        try:
            refuse_in_child()
            service = self._prepare(drain=drain, limit=limit)  # first: then even the earliest signal finds it
            try:
                with StopSignals(self._signalled) as signals:
                    service.launch()
                    left = signals.wait_for(service.ended)
            finally:
                self._service = None
                self._publishing.close_when_unused()
        except WakeqError as error:
            print(f"wakeq: {error}", file=sys.stderr)
            sys.exit(error.exit_status)
        signals.exit(left)
        return service.handled

    def start(self) -> None:
        """Begin to work in the background; BrokerUnreachable if there is no broker."""
        refuse_on_loop("worker.start()", "write `await asyncio.to_thread(worker.start)`, and the same for worker.stop")
        service = self._prepare()
        try:
            service.start()
        except BaseException:
            self._service = None
            raise

    def stop(self, grace: float | None = None) -> int:
        """Stop, and return how many messages were cut short: given back before their handlers had ended.

        Messages of which a broker that is away could not hear the end are among them.
        """
        if self._service is None:
            return 0
        service, self._service = self._service, None
        service.stop(self._grace_s if grace is None else grace)
        try:
            return service.wait()
        finally:
            self._publishing.close_when_unused()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    def _prepare(self, *, drain: bool = False, limit: int | None = None) -> EngineThread:
        """The service, not started; it is known before, so that a signal can stop it while it connects."""
        if self._service is not None:
            raise RuntimeError("this worker runs already")
        self.check()
        stays = not drain and limit is None
        self._service = EngineThread(
            lambda: self._make_engine(drain=drain, limit=limit),
            grace_s=self._grace_s,
            timetable=Timetable(self.schedules) if self.schedules and stays else None,
        )
        return self._service

    def _signalled(self, count: int) -> None:
        """Called in the main thread, between any two of its steps."""
        if self._service is not None:
            if count == 1:
                self._service.stop(self._grace_s)
            else:
                self._service.hurry()

    def check(self) -> None:
        """Raise BadHandler if a task can never work."""
        if not self.tasks:
            raise BadHandler("this worker has no tasks; decorate a function with @worker.task(queue)")
        for task in self.tasks.values():
            task.check()
            if task.mode == "process":
                from wakeq.worker.pools.processes import check_importable

                check_importable(task)

    def _make_engine(self, *, drain: bool, limit: int | None) -> "Engine[AsyncClient]":
        def make_client(engine: "Engine[AsyncClient]") -> AsyncClient:
            return AsyncClient(
                self.address, listener=engine, reconnect_for_s=math.inf, token=self._token, tls=self._tls
            )

        tasks = list(self.tasks.values())
        return Engine(make_client, self._make_pool, tasks, prefetch=self._prefetch, drain=drain, limit=limit)

    def _make_pool(self, mode: Mode, returns: FinishedJobs) -> Pool:
        match mode:
            case "thread":
                return ThreadPool(self.concurrency, returns)
            case "coroutine":
                return CoroutinePool(self.concurrency, returns)
            case "process":
                from wakeq.worker.pools.processes import ProcessPool

                return ProcessPool(self.concurrency, returns, self.process_set_up)
