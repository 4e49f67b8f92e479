"""call, call_async: run the handler of a task with one message, and say what is to become of it.

Everything that a handler can do ends here as a Outcome, also sys.exit(): nothing rises to the thread, loop or process
that runs it, nor comes back there in a copy of the process.  What a handler returns is looked at before its message
counts as done: an awaitable is awaited, and a generator is a failure, for then nothing has run yet.  Talks to no
broker; wakeq.testing and the child processes use the same functions.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from contextvars import copy_context
from inspect import isasyncgen, isawaitable, isgenerator
from typing import Any

from wakeq.client.core.encoding import text_of_reason
from wakeq.client.message import Received
from wakeq.worker import tracing
from wakeq.worker.context import CURRENT, Current, LogContext
from wakeq.worker.delivery import message_of
from wakeq.worker.outcome import Dead, GivenBack, Outcome, outcome_of, telling
from wakeq.worker.parameters import BadHandler, Misfit, name_of
from wakeq.worker.pools.forks import exit_if_forked, fork_count
from wakeq.worker.retry import HandlerDecision
from wakeq.worker.task import INSTEAD_OF_YIELD, Task

log = logging.getLogger("wakeq.worker")
log.addFilter(LogContext())


def call(task: Task[..., Any], message: Received, drawn: Callable[[], float] = random.random) -> Outcome:
    """The outcome on a message by a plain handler; `drawn` is for the jitter of a delay."""
    return copy_context().run(_call, task, message, drawn)


def _call(task: Task[..., Any], message: Received, drawn: Callable[[], float]) -> Outcome:
    before = fork_count()
    try:
        outcome: Outcome = _run(task, message).done()
    except BaseException as error:
        exit_if_forked(before, error)
        outcome = _ended_by(error, task, message, drawn)
    exit_if_forked(before)
    return outcome


async def call_async(task: Task[..., Any], message: Received, drawn: Callable[[], float] = random.random) -> Outcome:
    """The outcome on a message by a coroutine handler.  To be run as an asyncio.Task of its own."""
    before = fork_count()
    try:
        outcome: Outcome = (await run_async(task, message)).done()
    except BaseException as error:
        exit_if_forked(before, error)
        outcome = _ended_by(error, task, message, drawn)
    exit_if_forked(before)
    return outcome


def run(task: Task[..., Any], message: Received) -> Current:
    """Run a plain handler in a context of its own, and let rise what it raises."""
    return copy_context().run(_run, task, message)


def _run(task: Task[..., Any], message: Received) -> Current:
    current = Current(message)
    CURRENT.set(current)
    with tracing.handling(message, parent=task.trace_parent):
        returned = _started(task, message)
        if returned is not None:  # what a handler returns is dropped, unless it is the work itself, not yet done
            if isawaitable(returned):
                returned = asyncio.run(_awaited(returned))
            _refuse_generator(task, returned)
    return current


async def run_async(task: Task[..., Any], message: Received) -> Current:
    """Run a coroutine handler in the context of this asyncio.Task, and let rise what it raises."""
    current = Current(message)
    CURRENT.set(current)
    with tracing.handling(message, parent=task.trace_parent):
        _refuse_generator(task, await _awaited(_started(task, message)))
    return current


def _started(task: Task[..., Any], message: Received) -> object:
    """Call the handler of a task, and return what it returned."""
    if task.takes_message:
        return task.handler(message_of(message))
    return task.handler(**task.arguments_of(message.body))


async def _awaited(returned: object) -> object:
    """Await what a handler returned, until it is a plain value."""
    while isawaitable(returned):
        returned = await returned
    return returned


def _refuse_generator(task: Task[..., Any], returned: object) -> None:
    """Raise BadHandler if a handler returned a generator, for then its body has not run."""
    if isgenerator(returned) or isasyncgen(returned):
        raise BadHandler(f"{name_of(task.handler)} returned a generator, of which nothing has run; {INSTEAD_OF_YIELD}")


def _was_cancelled() -> bool:
    """Whether somebody cancelled the running task, and not its own code that raised so."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # it runs in a thread or process, and nobody cancels there
        return False
    return task is not None and task.cancelling() > 0


def _ended_by(error: BaseException, task: Task[..., Any], message: Received, drawn: Callable[[], float]) -> Outcome:
    """The outcome on a handler that raised, told to the log."""
    if isinstance(error, Misfit):
        outcome: GivenBack = Dead(text_of_reason(str(error)))
    else:
        outcome = outcome_of(error, task.retry, failures=message.failures, drawn=drawn())
    match error:
        case Misfit():
            level, trace = logging.ERROR, None
        case asyncio.CancelledError() if _was_cancelled():
            level, trace = logging.DEBUG, None  # whoever cancelled it knows why, and says what becomes of the message
        case HandlerDecision(is_asked_for=True) if not isinstance(outcome, Dead):
            level, trace = logging.INFO, None
        case HandlerDecision():  # what is lost to the queue is to be seen, also if it was asked for
            level, trace = logging.WARNING, None
        case _:
            level, trace = logging.ERROR, error
    log.log(level, *telling(message, outcome), exc_info=trace)
    return outcome
