"""Engine: the loop between the broker and the handlers. It runs on a thread of its own and never runs a handler.

    client --messages--> Engine --jobs--> pools          pools --outcomes--> Engine --ACK, NACK, TOUCH--> client

Other objects decide: FetchPlanner what to ask for, PrefetchEstimator how much to fetch ahead, Leases which leases are
due. The engine connects them with the client, the clock and the pools. It holds every message that was fetched until
the broker has heard its outcome, and stops without leaving one behind. With `drain` or a `limit` it knows by itself
when it is done.
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from wakeq.client.message import Received
from wakeq.protocol.errors import Disconnected, WakeqError
from wakeq.worker.engine.fetch_planner import Fetch, FetchPlanner, MessageLimit, PrefetchEstimator, Request, Sleep
from wakeq.worker.engine.leases import Batch, Job, Leases, TouchClient, extend_leases
from wakeq.worker.engine.outcome_reporter import OutcomeReporter, ReportClient
from wakeq.worker.hooks import Ended
from wakeq.worker.listeners import Listeners
from wakeq.worker.outcome import Done, Outcome, Released, failed, log_arguments
from wakeq.worker.pools.pool import FinishedJob, FinishedJobs, Pool
from wakeq.worker.resources import Resources
from wakeq.worker.task import Mode, Task

log = logging.getLogger("wakeq.worker")

# The pause after a refused request.
ASK_AGAIN_S = 1.0
# The pause after a lost connection is short, because asking has to wait for the next connection anyway.
ASK_AFTER_LOSS_S = 0.05
# A handler that is being ended has so much time before it is ended a second time.
ENDING_S = 5.0
# The time after the second attempt, and after the first one if the stop is urgent.
ENDING_AGAIN_S = 0.5
# At the end of a stop the broker has so much time to hear the last outcomes.
LAST_REPORTS_S = 5.0
URGENT_LAST_REPORTS_S = 1.0
CUT_SHORT = "the worker stopped before the handler ended"
STOPPING = "the worker is stopping"
LOST = "its lease timed out before the handler ended, and it is delivered again"


class WorkerClient(ReportClient, TouchClient, Protocol):
    """The methods of AsyncClient that the engine needs."""

    @property
    def address(self) -> str: ...

    async def subscribe(self, queue: str) -> None: ...
    async def unsubscribe(self, queue: str) -> None: ...
    async def sleep(self, queue: str) -> None: ...
    async def fetch_many(self, queue: str, count: int) -> Sequence[Received]: ...


C = TypeVar("C", bound=WorkerClient)


class HandlerGroup:
    """All tasks of one mode: their pool, what to ask the broker for them, and how much to fetch ahead."""

    __slots__ = ("estimator", "planner", "pool", "tasks")

    def __init__(self, pool: Pool, tasks: Sequence[Task[..., Any]], limit: MessageLimit, *, prefetch: int) -> None:
        self.pool = pool
        self.tasks = {task.queue: task for task in tasks}
        self.planner = FetchPlanner(self.tasks, slots=pool.slots, limit=limit)
        self.estimator = PrefetchEstimator(slots=pool.slots, prefetch_max=prefetch * pool.slots)


class Engine(Generic[C]):
    """The loop of one worker. All methods must be called on the loop."""

    def __init__(
        self,
        make_client: "Callable[[Engine[C]], C]",
        make_pool: Callable[[Mode, FinishedJobs], Pool],
        tasks: Sequence[Task[..., Any]],
        *,
        prefetch: int,
        drain: bool = False,
        limit: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        resources: Resources | None = None,
        listeners: Listeners | None = None,
    ) -> None:
        self.client = make_client(self)
        self.resources = resources
        self.listeners = listeners
        # Set when drain or limit are fulfilled, when a pool is stuck, or when a resource is lost.
        self.done = asyncio.Event()
        self._drain = drain
        self._limit = MessageLimit(limit)
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._reporter = OutcomeReporter(self.client, self._check_drain)
        self._leases = Leases()
        # One timer for all leases, and the moment for which it is set.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = math.inf
        # Outstanding requests to the broker, except for outcomes.
        self._requests: set[asyncio.Task[None]] = set()
        self._started = False
        # There is no connection, and the client is reconnecting.
        self._lost = asyncio.Event()
        self._stopping = False
        # The grace period of a stop is over.
        self._cutting_short = False
        # A pool has handlers that cannot be ended and no room for others.
        self._is_stuck = False
        # While stopping: no message is held any more.
        self._all_released = asyncio.Event()
        self._finished = FinishedJobs(self._loop, self._collect, listeners)
        self._groups: dict[Mode, HandlerGroup] = {}
        modes: dict[Mode, None] = dict.fromkeys(task.mode for task in tasks)
        # The loop of the coroutines holds the asynchronous resources, even if no task runs there.
        if resources is not None and resources.needs_loop:
            modes["coroutine"] = None
        for mode in modes:
            members = [task for task in tasks if task.mode == mode]
            self._groups[mode] = HandlerGroup(make_pool(mode, self._finished), members, self._limit, prefetch=prefetch)

    @property
    def handled(self) -> int:
        """The number of messages that were fetched, without those that were released before a handler began."""
        return self._limit.taken

    @property
    def lost_resource(self) -> str | None:
        """The text about a resource that has ended while handlers may still run; None if there is none."""
        return self.resources.lost.result() if self.resources is not None and self.resources.lost.done() else None

    # The client's listener ----------------------------------------------------------------------------------

    def connected(self) -> None:
        self._lost.clear()
        if self._started:
            log.info("connected to %s", self.client.address)
        for group in self._groups.values():
            group.planner.connected()
            self._ask(group)

    def disconnected(self, error: WakeqError) -> None:
        self._lost.set()
        log.info("connection lost, handlers continue: %s", error)
        for group in self._groups.values():
            group.planner.lost()

    def awoken(self, queue: str) -> None:
        for group in self._groups.values():
            group.planner.woken(queue)
            self._ask(group)

    # Start and stop -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the resources, subscribe to the queues and begin to fetch. The client must be connected."""
        if self.resources is not None:
            self.resources.begin()
        for group in self._groups.values():
            group.pool.start()
        if self.resources is not None:
            await self.resources.wait_until_open()
            self.resources.lost.add_done_callback(self._resource_lost)
        for group in self._groups.values():
            for queue in group.tasks:
                await self.client.subscribe(queue)
        self._started = True
        for mode, group in self._groups.items():
            if not group.tasks:
                continue
            queues, slots = ", ".join(group.tasks), group.pool.slots
            log.info("serving %s of %s, %d at once (%s)", queues, self.client.address, slots, mode)
        self._ask_all()

    async def stop(self, grace_s: float, hurry: asyncio.Event) -> int:
        """Fetch no more, wait for running handlers, release the rest; `hurry` cuts the grace period short.

        Return the number of messages whose handlers had not ended, or whose outcome the broker has not heard. If a pool
        was stuck, return at least 1.
        """
        self._stopping = True
        for group in self._groups.values():
            group.planner.close()
            self._release_untried(group.pool.take_back(), STOPPING)
        self._reporter.flush()
        self._begin(self._unsubscribe())
        self._note_if_released()
        await first_of(self._all_released.wait(), hurry.wait(), asyncio.sleep(grace_s))
        # Handlers that ended at the last moment count as ended.
        self._finished.gather()
        left = len(self._leases)
        if left:
            log.warning("not waiting any longer; released: %s", ", ".join(map(str, self._leases)))
        await self._cut_short(hurry)
        await self._finish_reports(URGENT_LAST_REPORTS_S if hurry.is_set() else LAST_REPORTS_S)
        return max(left, self._reporter.unreported, self._is_stuck)

    async def _cut_short(self, hurry: asyncio.Event) -> None:
        """End the handlers that can be ended. Release each message when its handler is gone, or will not go."""
        self._cutting_short = True
        for group in self._groups.values():
            group.pool.stop()
        self._release([job for job in self._leases if not self._abandon(job)], CUT_SHORT)
        self._reporter.flush()
        self._note_if_released()
        if hurry.is_set():
            await first_of(self._all_released.wait(), asyncio.sleep(ENDING_AGAIN_S))
        else:
            await first_of(self._all_released.wait(), hurry.wait(), asyncio.sleep(ENDING_S))
        for job in self._leases:
            self._abandon(job)
        await first_of(self._all_released.wait(), asyncio.sleep(ENDING_AGAIN_S))
        self._release(list(self._leases), CUT_SHORT)
        self._reporter.flush()

    def _abandon(self, job: Job) -> bool:
        return self._groups[job.task.mode].pool.abandon(job)

    def end_pools(self) -> None:
        """Stop the pools and abandon the handlers that still run. May be called again."""
        for group in self._groups.values():
            group.pool.stop()
        for job in self._leases:
            self._abandon(job)

    async def _finish_reports(self, timeout_s: float) -> None:
        """Wait until the broker has heard everything, but not for longer than the timeout.

        Requests can bring more messages to release, but not while there is no connection.
        """
        lost = self._loop.create_task(self._lost.wait())
        try:
            async with asyncio.timeout(timeout_s):
                while self._reporter.under_way or (self._requests and not lost.done()):
                    requests = () if lost.done() else (*self._requests, lost)
                    await asyncio.wait({*self._reporter.under_way, *requests}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            if self._reporter.unreported:
                log.warning(
                    "the broker does not answer; %d messages will be redelivered when their leases end",
                    self._reporter.unreported,
                )
            self._reporter.give_up()
        finally:
            lost.cancel()
        if self._timer is not None:
            self._timer.cancel()

    async def _unsubscribe(self) -> None:
        try:
            for queue in [queue for group in self._groups.values() for queue in group.tasks]:
                await self.client.unsubscribe(queue)
        # The end of the connection has the same effect.
        except WakeqError as error:
            log.debug("could not unsubscribe: %s", error)

    # Requests -----------------------------------------------------------------------------------------------

    def _ask_all(self) -> None:
        for group in self._groups.values():
            self._ask(group)

    def _ask(self, group: HandlerGroup) -> None:
        if not self._started:
            return
        for request in group.planner.next_requests():
            self._begin(self._fetch(group, request) if isinstance(request, Fetch) else self._sleep(group, request))

    def _begin(self, request: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(request)
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _fetch(self, group: HandlerGroup, request: Fetch) -> None:
        try:
            messages = await self.client.fetch_many(request.queue, request.count)
        except WakeqError as error:
            self._refused(group, request, error)
            return
        group.planner.fetched(request, len(messages))
        if messages:
            self._run(group, group.tasks[request.queue], messages)
        # Other queues may use the room that this fetch had reserved and did not need.
        self._ask_all()
        self._end_if_done()

    async def _sleep(self, group: HandlerGroup, request: Sleep) -> None:
        try:
            await self.client.sleep(request.queue)
        except WakeqError as error:
            self._refused(group, request, error)
            return
        group.planner.slept(request)
        self._ask(group)

    def _refused(self, group: HandlerGroup, request: Request, error: WakeqError) -> None:
        """Ask again after a pause."""
        is_lost = isinstance(error, Disconnected)
        pause_s = ASK_AFTER_LOSS_S if is_lost else ASK_AGAIN_S
        if not is_lost:
            log.warning("%s: the broker refused the request, trying again in %g s: %s", request.queue, pause_s, error)
        group.planner.refused(request)
        self._ask_all()
        self._loop.call_later(pause_s, self._resume, group, request.queue)

    def _resume(self, group: HandlerGroup, queue: str) -> None:
        group.planner.resumed(queue)
        self._ask(group)

    # Jobs ---------------------------------------------------------------------------------------------------

    def _run(self, group: HandlerGroup, task: Task[..., Any], messages: Sequence[Received]) -> None:
        jobs = [Job(task, message) for message in messages]
        self._leases.add(jobs, self._clock())
        if self._stopping:
            self._release_untried(jobs, STOPPING)
            self._reporter.flush()
            return
        self._set_timer()
        group.pool.submit(jobs)

    def _collect(self, finished: list[FinishedJob]) -> None:
        """Report the outcomes of handlers that have ended, and fetch more messages."""
        durations_s: dict[Mode, list[float]] = {}
        for job, outcome, duration_s in finished:
            # A handler that was cut short has not failed by its own fault.
            if self._cutting_short and not isinstance(outcome, Done):
                outcome = Released(CUT_SHORT)
            # Nor has one that began when its resource was gone.
            elif self.lost_resource and job.task.mode == "coroutine" and not isinstance(outcome, Done):
                outcome = Released(self.lost_resource)
            if self._end(job, outcome, duration_s):
                durations_s.setdefault(job.task.mode, []).append(duration_s)
        self._reporter.flush()
        for mode, taken_s in durations_s.items():
            group = self._groups[mode]
            group.estimator.finished(len(taken_s), sum(taken_s))
            group.planner.set_prefetch(group.estimator.prefetch)
            self._ask(group)
        self._note_if_released()

    def _end(self, job: Job, outcome: Outcome, duration_s: float | None = None) -> bool:
        """Hold a message no more and report its outcome. Return False if it has an outcome already."""
        if not self._leases.release(job):
            return False
        if self.listeners is not None and job.started_s is not None:
            if duration_s is None:
                duration_s = self._clock() - job.started_s
            reported = Released(LOST) if job.is_lost else outcome
            self.listeners.put(Ended(job.task, job.message, reported, duration_s))
        self._groups[job.task.mode].planner.released(1)
        # A lost message has kept its slot until its handler ended, but other workers may have it now.
        if job.is_lost:
            self._check_drain()
        else:
            self._reporter.add(job.message, outcome)
        return True

    def _release(self, jobs: list[Job], reason: str) -> None:
        for job in jobs:
            self._end(job, Released(reason))

    def _release_untried(self, jobs: list[Job], reason: str) -> None:
        self._limit.untried(len(jobs))
        self._release(jobs, reason)

    # Drain and limit ----------------------------------------------------------------------------------------

    def _note_if_released(self) -> None:
        if self._stopping and not self._leases:
            self._all_released.set()

    def _check_drain(self) -> None:
        """In a drain, ask all queues again: outcomes were reported or messages lost, and new messages may be ready."""
        if self._drain and self._holds_nothing():
            for group in self._groups.values():
                group.planner.recheck()
            self._ask_all()
        self._end_if_done()

    def _end_if_done(self) -> None:
        is_drained = self._drain and all(group.planner.all_empty for group in self._groups.values())
        if (is_drained or self._limit.is_reached) and self._holds_nothing():
            self._finish()

    def _finish(self) -> None:
        """Fetch no more and ask to be stopped."""
        for group in self._groups.values():
            group.planner.close()
        self.done.set()

    def _resource_lost(self, _lost: "Future[str]") -> None:
        """Ask to be stopped. Called on the loop of the resource."""
        # If the loop is closed, the worker has stopped.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._finish)

    def _holds_nothing(self) -> bool:
        """Return whether no message is held and the broker has heard all outcomes."""
        return not self._leases and self._reporter.idle

    # Leases -------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """Set the timer to the earliest check of a lease."""
        at_s = self._leases.next_check_s
        if at_s is None or at_s >= self._timer_at_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = at_s
        self._timer = self._loop.call_later(max(0.0, at_s - self._clock()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at_s = None, math.inf
        now_s = self._clock()
        for batch in self._leases.due(now_s):
            self._check(batch, now_s)
        self._end_if_stuck()
        self._reporter.flush()
        self._ask_all()
        self._set_timer()
        self._note_if_released()

    def _check(self, batch: Batch, now_s: float) -> None:
        """Release messages that could not start, give up handlers that run for too long, extend the other leases."""
        group = self._groups[batch.task.mode]
        if any(job.started_s is None for job in batch.jobs):
            self._release_untried(group.pool.take_back(), "prefetched, and the handlers before it took long")
            group.estimator.stalled(now_s - batch.fetched_s)
            group.planner.set_prefetch(group.estimator.prefetch)
        for job in batch.overdue(now_s):
            self._give_up(job)
        if not batch.jobs:
            return
        if now_s >= batch.extend_at_s:
            batch.extended(now_s)
            if not batch.is_extending:
                self._begin(extend_leases(self.client, batch, self._clock))
        self._leases.schedule(batch, now_s)

    def _give_up(self, job: Job) -> None:
        """Fail a handler that has run for `max_run`. Its message is retried as after any failure."""
        error = f"the handler ran for more than {job.task.max_run:g} s (max_run)"
        outcome = failed(error, job.task.retry, job.message.failures, random.random())
        self._end(job, outcome)
        remains = "" if self._abandon(job) else "; its thread cannot be ended and goes on, even beside the next try"
        text, *arguments = log_arguments(job.message, outcome)
        log.error(text + "%s", *arguments, remains)

    def _end_if_stuck(self) -> None:
        if not (self._is_stuck or self._stopping) and any(group.pool.is_stuck for group in self._groups.values()):
            self._is_stuck = True
            self._finish()
            log.error(
                "handlers that ran longer than max_run and cannot be ended leave no room for others: the worker stops "
                "and has to be started again; give the calls that they wait for a timeout, or set mode='process'"
            )


async def first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when one of the coroutines has returned, and cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
