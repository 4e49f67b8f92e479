"""Engine: the loop between the broker and the handlers; it runs on a thread of its own and never runs a handler.

    client --messages--> Engine --jobs--> pools          pools --outcomes--> Engine --settlements--> client

It decides nothing by itself: what to ask is FetchPlanner's, how far ahead is PrefetchEstimator's, what is due is Leases'; here they
meet the client, the clock and the pools.  It keeps every message that was fetched until the broker was told what became
of it, and stops without leaving one behind.  With `drain` or a `limit` it says by itself when it is done.
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, Protocol, TypeVar

from wakeq.client.message import Received
from wakeq.protocol.errors import Disconnected, WakeqError
from wakeq.worker.engine.fetch_planner import Fetch, Question, Sleep
from wakeq.worker.engine.job import Job
from wakeq.worker.engine.lease_extension import Toucher, extend
from wakeq.worker.engine.leases import Batch, Leases
from wakeq.worker.engine.message_limit import MessageLimit
from wakeq.worker.engine.outcome_reporter import OutcomeReporter, Settler
from wakeq.worker.outcome import Done, Outcome, Returned, failed, telling
from wakeq.worker.pools.crew import Crew
from wakeq.worker.pools.pool import Ended, FinishedJobs, Pool
from wakeq.worker.task import Mode, Task

log = logging.getLogger("wakeq.worker")

ASK_AGAIN_S = 1.0  # after a refusal
AFTER_LOSS_S = 0.05  # the next connection, not the pause, says when
ENDING_S = 5.0  # for a handler that is being ended, before that is insisted on
INSISTING_S = 0.5  # afterwards, and before if there is a hurry
FAREWELL_S = 5.0  # for the broker to hear what became of the last messages
HURRIED_FAREWELL_S = 1.0
CUT_SHORT = "the worker stopped, and the handler had not ended"


class Conversation(Settler, Toucher, Protocol):
    """What the engine needs of an AsyncClient."""

    @property
    def address(self) -> str: ...

    async def subscribe(self, queue: str) -> None: ...
    async def unsubscribe(self, queue: str) -> None: ...
    async def sleep(self, queue: str) -> None: ...
    async def fetch_many(self, queue: str, count: int) -> Sequence[Received]: ...


C = TypeVar("C", bound=Conversation)


class Engine(Generic[C]):
    """One worker's conversation.  All methods belong to the loop."""

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
    ) -> None:
        self.client = make_client(self)
        self.done = asyncio.Event()  # all that drain and limit asked for, or all that it can do
        self._drain = drain
        self._limit = MessageLimit(limit)
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._reporter = OutcomeReporter(self.client, self._take_stock)
        self._leases = Leases()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_s = math.inf
        self._questions: set[asyncio.Task[None]] = set()
        self._started = False
        self._stopping = False
        self._cutting_short = False
        self._worn_out = False
        self._at_rest = asyncio.Event()  # while stopping: nothing runs any more
        self._finished = FinishedJobs(self._loop, self._collect)
        self._crews: dict[Mode, Crew] = {}
        for mode in dict.fromkeys(task.mode for task in tasks):
            members = [task for task in tasks if task.mode == mode]
            self._crews[mode] = Crew(make_pool(mode, self._finished), members, self._limit, prefetch=prefetch)

    @property
    def handled(self) -> int:
        """How many messages were taken and not given back untried."""
        return self._limit.taken

    # The client's listener ----------------------------------------------------------------------------------

    def connected(self) -> None:
        if self._started:
            log.info("connected to %s", self.client.address)
        for crew in self._crews.values():
            crew.planner.connected()
            self._ask(crew)

    def disconnected(self, error: WakeqError) -> None:
        log.info("the connection is lost, handlers go on: %s", error)
        for crew in self._crews.values():
            crew.planner.lost()

    def awoken(self, queue: str) -> None:
        for crew in self._crews.values():
            crew.planner.awoken(queue)
            self._ask(crew)

    # Life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Subscribe to the queues and begin to ask.  The client is connected."""
        for crew in self._crews.values():
            crew.pool.start()
            for queue in crew.tasks:
                await self.client.subscribe(queue)
        self._started = True
        for mode, crew in self._crews.items():
            log.info(
                "serves %s of %s, %d at once (%s)", ", ".join(crew.tasks), self.client.address, crew.pool.slots, mode
            )
        self._ask_all()

    async def stop(self, grace_s: float, hurry: asyncio.Event) -> int:
        """Ask for nothing more, let handlers end, give back the rest; `hurry` cuts the grace short.

        Return of how many messages the handlers had not ended, or the broker has not heard the end; and not 0 if
        handlers that cannot be ended are why it stops.
        """
        self._stopping = True
        for crew in self._crews.values():
            crew.planner.close()
            self._give_back_untried(crew.pool.take_back(), "the worker stops")
        self._reporter.flush()
        self._begin(self._unsubscribe())
        self._rest_if_idle()
        await first_of(self._at_rest.wait(), hurry.wait(), asyncio.sleep(grace_s))
        self._finished.gather()  # who ended in the last moment has ended
        left = len(self._leases)
        if left:
            log.warning("not waited for any longer, and given back: %s", ", ".join(map(str, self._leases)))
        await self._cut_short(hurry)
        await self._farewell(HURRIED_FAREWELL_S if hurry.is_set() else FAREWELL_S)
        return max(left, self._reporter.unheard, self._worn_out)

    async def _cut_short(self, hurry: asyncio.Event) -> None:
        """End the handlers that can be ended, and give a message back when its handler is gone, or will not go."""
        self._cutting_short = True
        for crew in self._crews.values():
            crew.pool.stop()
        self._give_back([job for job in self._leases if not self._abandon(job)], CUT_SHORT)
        self._reporter.flush()
        self._rest_if_idle()
        if hurry.is_set():
            await first_of(self._at_rest.wait(), asyncio.sleep(INSISTING_S))
        else:
            await first_of(self._at_rest.wait(), hurry.wait(), asyncio.sleep(ENDING_S))
        for job in self._leases:
            self._abandon(job)
        await first_of(self._at_rest.wait(), asyncio.sleep(INSISTING_S))
        self._give_back(list(self._leases), CUT_SHORT)
        self._reporter.flush()

    def _abandon(self, job: Job) -> bool:
        return self._crews[job.task.mode].pool.abandon(job)

    def end_pools(self) -> None:
        """Let go of the pools, and abandon the handlers that still run.  May be called again."""
        for crew in self._crews.values():
            crew.pool.stop()
        for job in self._leases:
            self._abandon(job)

    async def _farewell(self, patience_s: float) -> None:
        """Until the broker has heard everything, or for so long."""
        try:
            async with asyncio.timeout(patience_s):
                while under_way := {*self._reporter.under_way, *self._questions}:
                    await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            log.warning(
                "the broker does not answer; %d messages come back when their leases end", self._reporter.unheard
            )
            self._reporter.give_up()
        if self._alarm is not None:
            self._alarm.cancel()

    async def _unsubscribe(self) -> None:
        try:
            for queue in [queue for crew in self._crews.values() for queue in crew.tasks]:
                await self.client.unsubscribe(queue)
        except WakeqError as error:  # the end of the connection does the same
            log.debug("not unsubscribed: %s", error)

    # Asking -------------------------------------------------------------------------------------------------

    def _ask_all(self) -> None:
        for crew in self._crews.values():
            self._ask(crew)

    def _ask(self, crew: Crew) -> None:
        if not self._started:
            return
        for question in crew.planner.questions():
            self._begin(self._fetch(crew, question) if isinstance(question, Fetch) else self._sleep(crew, question))

    def _begin(self, question: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(question)
        self._questions.add(task)
        task.add_done_callback(self._questions.discard)

    async def _fetch(self, crew: Crew, question: Fetch) -> None:
        try:
            messages = await self.client.fetch_many(question.queue, question.count)
        except WakeqError as error:
            self._refused(crew, question, error)
            return
        crew.planner.answered(question, len(messages))
        if messages:
            self._take(crew, crew.tasks[question.queue], messages)
        self._ask_all()  # what did not come others may ask for
        self._end_if_done()

    async def _sleep(self, crew: Crew, question: Sleep) -> None:
        try:
            await self.client.sleep(question.queue)
        except WakeqError as error:
            self._refused(crew, question, error)
            return
        crew.planner.slept(question)
        self._ask(crew)

    def _refused(self, crew: Crew, question: Question, error: WakeqError) -> None:
        """Ask again later; a connection that was lost is no reason to wait, for the next one says when."""
        lost = isinstance(error, Disconnected)
        pause_s = AFTER_LOSS_S if lost else ASK_AGAIN_S
        if not lost:
            log.warning("%s: the broker refused to be asked, trying again in %g s: %s", question.queue, pause_s, error)
        crew.planner.refused(question)
        self._ask_all()
        self._loop.call_later(pause_s, self._resume, crew, question.queue)

    def _resume(self, crew: Crew, queue: str) -> None:
        crew.planner.resumed(queue)
        self._ask(crew)

    # Jobs ---------------------------------------------------------------------------------------------------

    def _take(self, crew: Crew, task: Task[..., Any], messages: Sequence[Received]) -> None:
        jobs = [Job(task, message) for message in messages]
        self._leases.take(jobs, self._clock())
        if self._stopping:
            self._give_back_untried(jobs, "the worker stops")
            self._reporter.flush()
            return
        self._set_alarm()
        crew.pool.submit(jobs)

    def _collect(self, ended: list[Ended]) -> None:
        """Handlers have ended: settle, and ask for more."""
        spans: dict[Mode, list[float]] = {}
        for job, outcome, span_s in ended:
            if self._cutting_short and not isinstance(outcome, Done):
                outcome = Returned(CUT_SHORT)  # not its own fault
            if self._settle(job, outcome):
                spans.setdefault(job.task.mode, []).append(span_s)
        self._reporter.flush()
        for mode, taken in spans.items():
            crew = self._crews[mode]
            crew.prefetch.took(len(taken), sum(taken))
            crew.planner.reach(crew.prefetch.ahead)
            self._ask(crew)
        self._rest_if_idle()

    def _settle(self, job: Job, outcome: Outcome) -> bool:
        """This is what becomes of it; False if that was said before."""
        if not self._leases.release(job):
            return False
        self._crews[job.task.mode].planner.freed(1)
        if job.lost:  # it kept its place until now, but others have the message
            self._take_stock()
        else:
            self._reporter.add(job.message, outcome)
        return True

    def _give_back(self, jobs: list[Job], reason: str) -> None:
        for job in jobs:
            self._settle(job, Returned(reason))

    def _give_back_untried(self, jobs: list[Job], reason: str) -> None:
        self._limit.untried(len(jobs))
        self._give_back(jobs, reason)

    # The end ------------------------------------------------------------------------------------------------

    def _rest_if_idle(self) -> None:
        if self._stopping and not self._leases:
            self._at_rest.set()

    def _take_stock(self) -> None:
        """What became of some messages was heard, or they were lost: are there more?"""
        if self._drain and self._holds_nothing():
            for crew in self._crews.values():
                crew.planner.doubt()
            self._ask_all()
        self._end_if_done()

    def _end_if_done(self) -> None:
        sated = self._drain and all(crew.planner.sated for crew in self._crews.values())
        if (sated or self._limit.spent) and self._holds_nothing():
            self._end()

    def _end(self) -> None:
        for crew in self._crews.values():
            crew.planner.close()  # until it is stopped, too
        self.done.set()

    def _holds_nothing(self) -> bool:
        """No message is held, and the broker has heard what became of those that were."""
        return not self._leases and self._reporter.idle

    # Leases -------------------------------------------------------------------------------------------------

    def _set_alarm(self) -> None:
        """One timer for all leases, at the earliest."""
        at_s = self._leases.next_s
        if at_s is None or at_s >= self._alarm_s:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_s = at_s
        self._alarm = self._loop.call_later(max(0.0, at_s - self._clock()), self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm, self._alarm_s = None, math.inf
        now_s = self._clock()
        for batch in self._leases.due(now_s):
            self._look_after(batch, now_s)
        self._end_if_worn_out()
        self._reporter.flush()
        self._ask_all()
        self._set_alarm()
        self._rest_if_idle()

    def _look_after(self, batch: Batch, now_s: float) -> None:
        """Give back what could not start, give up what runs for too long, keep the rest."""
        crew = self._crews[batch.task.mode]
        if any(job.started_s is None for job in batch.jobs):
            self._give_back_untried(crew.pool.take_back(), "fetched ahead, and the handlers before it took long")
            crew.prefetch.stalled(now_s - batch.taken_s)
            crew.planner.reach(crew.prefetch.ahead)
        for job in batch.overdue(now_s):
            self._give_up(job)
        if not batch.jobs:
            return
        if now_s >= batch.extend_at_s:
            batch.extended(now_s)
            if not batch.is_extending:
                self._begin(extend(self.client, batch, self._clock))
        self._leases.watch(batch, now_s)

    def _give_up(self, job: Job) -> None:
        """A handler that ran for as long as it may: its message is tried again as after any failure."""
        error = f"the handler ran for more than {job.task.max_run:g} s (max_run)"
        outcome = failed(error, job.task.retry, job.message.failures, random.random())
        self._settle(job, outcome)
        remains = "" if self._abandon(job) else "; its thread cannot be ended and goes on, also beside the next try"
        text, *facts = telling(job.message, outcome)
        log.error(text + "%s", *facts, remains)

    def _end_if_worn_out(self) -> None:
        if not (self._worn_out or self._stopping) and any(crew.pool.worn_out for crew in self._crews.values()):
            self._worn_out = True
            self._end()
            log.error(
                "handlers that ran longer than max_run and cannot be ended leave no room for others: the worker stops "
                "and has to be started again; give whatever they wait for a timeout, or the task mode='process'"
            )


async def first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when one of them has, and end the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
