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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from wakeq.client.aio import AsyncClient
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.names import check_name
from wakeq.protocol.wire.worker_commands import SECONDS_MAX, TIMEOUT_S_MIN
from wakeq.worker.coroutines import CoroutinePool
from wakeq.worker.engine import Engine
from wakeq.worker.parameters import BadHandler
from wakeq.worker.pool import Pool, Returns
from wakeq.worker.retry import Retry
from wakeq.worker.service import Service
from wakeq.worker.stop import Signals, refuse_in_child
from wakeq.worker.task import Mode, Outbox, Task, mode_of
from wakeq.worker.threads import ThreadPool

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
    ) -> None:
        """Serve the queues of the broker at `address`; else of WAKEQ_BROKER, else of 127.0.0.1:2601.

        `concurrency` handlers run at once: in threads, as coroutines and in processes, so many of each.  `prefetch`
        messages at most are fetched ahead for each of them, and only while handlers take less than 50 ms.  At a stop
        handlers have `grace` seconds to end.  With `trace_parent` the span of a handler is a child of the
        publisher's, not linked to it.
        """
        if concurrency < 1:
            raise ValueError(f"Worker: concurrency is {concurrency}; it takes at least 1 to work")
        if prefetch < 0:
            raise ValueError(f"Worker: prefetch is {prefetch}; it is a number of messages, 0 or more")
        self.address = address
        self.tasks: dict[str, Task[..., Any]] = {}
        self.concurrency = concurrency  # may be changed until it runs
        self._prefetch = prefetch
        self._grace_s = grace
        self._trace_parent = trace_parent
        self._outbox: Outbox | None = None
        self._outbox_lock = threading.Lock()
        self._service: Service | None = None

    # Tasks --------------------------------------------------------------------------------------------------

    def task(
        self,
        queue: str,
        *,
        timeout: int = TIMEOUT_S,
        retry: Retry | None = None,
        max_run: float = MAX_RUN_S,
        mode: Mode | None = None,
    ) -> Callable[[Callable[P, R]], Task[P, R]]:
        """Make a function the handler of a queue; the queue's name is the task's name, and it has no other.

        `timeout`: a worker that is not heard of for so many seconds has lost the message; a handler may run for
        longer, up to `max_run`.  `retry` says how often and when to try again; without it the queue's policy does.
        `mode`: a plain function runs in a thread, or in a process of its own with "process"; an `async def` on a loop.
        """
        check_name(queue)
        if not TIMEOUT_S_MIN <= timeout <= SECONDS_MAX:
            raise ValueError(
                f"task {queue}: timeout is {timeout}; it is {TIMEOUT_S_MIN} to {SECONDS_MAX} whole seconds"
            )

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

    @contextmanager
    def publishing_to(self, outbox: Outbox) -> Iterator[None]:
        """Publish through this instead of a connection of our own, as tests do."""
        before, self._outbox = self._outbox, outbox
        try:
            yield
        finally:
            self._outbox = before

    def _client(self) -> Outbox:
        """The connection for publishing, made when it is first needed."""
        with self._outbox_lock:
            if self._outbox is None:
                from wakeq.client.blocking import Client  # a worker that publishes nothing has no second connection

                self._outbox = Client(self.address)
            return self._outbox

    # Work ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until SIGTERM or SIGINT, and end the process as documented if a handler was not waited for.

        Only for the main thread.  The first signal stops as `stop` does, the second at once.
        """
        try:
            refuse_in_child()
            with Signals(self._signalled) as signals:
                left = signals.wait_for(self._begin().ended)
        except WakeqError as error:
            print(f"wakeq: {error}", file=sys.stderr)
            sys.exit(error.exit_status)
        finally:
            self._service = None
        signals.exit(left)

    def start(self) -> None:
        """Begin to work in the background; BrokerUnreachable if there is no broker."""
        self._begin()

    def stop(self, grace: float | None = None) -> int:
        """Stop, and return how many messages were cut short: given back before their handlers had ended.

        Messages of which a broker that is away could not hear the end are among them.
        """
        if self._service is None:
            return 0
        service, self._service = self._service, None
        service.stop(self._grace_s if grace is None else grace)
        return service.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    def _begin(self) -> Service:
        """The service, which works; it is known before, so that a signal can stop it while it connects."""
        if self._service is not None:
            raise RuntimeError("this worker runs already")
        self.check()
        self._service = service = Service(self._make_engine)
        try:
            service.start()
        except BaseException:
            self._service = None
            raise
        return service

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
                from wakeq.worker.processes import check_importable

                check_importable(task)

    def _make_engine(self) -> "Engine[AsyncClient]":
        def make_client(engine: "Engine[AsyncClient]") -> AsyncClient:
            return AsyncClient(self.address, listener=engine, reconnect_for_s=math.inf)

        return Engine(make_client, self._make_pool, list(self.tasks.values()), prefetch=self._prefetch)

    def _make_pool(self, mode: Mode, returns: Returns) -> Pool:
        match mode:
            case "thread":
                return ThreadPool(self.concurrency, returns)
            case "coroutine":
                return CoroutinePool(self.concurrency, returns)
            case "process":
                from wakeq.worker.processes import ProcessPool

                return ProcessPool(self.concurrency, returns)
