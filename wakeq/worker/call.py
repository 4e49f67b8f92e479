"""call, call_async: run the handler of a task with one message, and say what is to become of it.

Everything that a handler can do ends here as a Verdict, also sys.exit(): nothing rises to the thread, loop or process
that runs it, nor comes back there in a copy of the process.  Talks to no broker; wakeq.testing and the child processes
use the same two functions.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any, cast

from wakeq.client.encoding import text_of_reason
from wakeq.client.message import Received
from wakeq.worker import tracing
from wakeq.worker.context import CURRENT, Current, LogContext
from wakeq.worker.copies import end_copy, forks
from wakeq.worker.delivery import message_of
from wakeq.worker.parameters import Misfit
from wakeq.worker.retry import Ending
from wakeq.worker.task import Task
from wakeq.worker.verdict import Dead, GivenBack, Verdict, telling, verdict_of

log = logging.getLogger("wakeq.worker")
log.addFilter(LogContext())


def call(task: Task[..., Any], message: Received, drawn: Callable[[], float] = random.random) -> Verdict:
    """The verdict on a message by a plain handler; `drawn` is for the jitter of a delay."""
    return copy_context().run(_call, task, message, drawn)


def _call(task: Task[..., Any], message: Received, drawn: Callable[[], float]) -> Verdict:
    before = forks()
    try:
        verdict: Verdict = _run(task, message).done()
    except BaseException as error:
        end_copy(before, error)
        verdict = _ended_by(error, task, message, drawn)
    end_copy(before)
    return verdict


async def call_async(task: Task[..., Any], message: Received, drawn: Callable[[], float] = random.random) -> Verdict:
    """The verdict on a message by a coroutine handler.  To be run as an asyncio.Task of its own."""
    before = forks()
    try:
        verdict: Verdict = (await run_async(task, message)).done()
    except BaseException as error:
        end_copy(before, error)
        verdict = _ended_by(error, task, message, drawn)
    end_copy(before)
    return verdict


def run(task: Task[..., Any], message: Received) -> Current:
    """Run a plain handler in a context of its own, and let rise what it raises."""
    return copy_context().run(_run, task, message)


def _run(task: Task[..., Any], message: Received) -> Current:
    current = Current(message)
    CURRENT.set(current)
    with tracing.handling(message, parent=task.trace_parent):
        if task.takes_message:
            task.handler(message_of(message))
        else:
            task.handler(**task.arguments_of(message.body))
    return current


async def run_async(task: Task[..., Any], message: Received) -> Current:
    """Run a coroutine handler in the context of this asyncio.Task, and let rise what it raises."""
    current = Current(message)
    CURRENT.set(current)
    with tracing.handling(message, parent=task.trace_parent):
        if task.takes_message:
            await cast(Awaitable[object], task.handler(message_of(message)))
        else:
            await cast(Awaitable[object], task.handler(**task.arguments_of(message.body)))
    return current


def _was_cancelled() -> bool:
    """Whether somebody cancelled the running task, and not its own code that raised so."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # it runs in a thread or process, and nobody cancels there
        return False
    return task is not None and task.cancelling() > 0


def _ended_by(error: BaseException, task: Task[..., Any], message: Received, drawn: Callable[[], float]) -> Verdict:
    """The verdict on a handler that raised, told to the log."""
    if isinstance(error, Misfit):
        verdict: GivenBack = Dead(text_of_reason(str(error)))
    else:
        verdict = verdict_of(error, task.retry, failures=message.failures, drawn=drawn())
    match error:
        case Misfit():
            level, trace = logging.ERROR, None
        case asyncio.CancelledError() if _was_cancelled():
            level, trace = logging.DEBUG, None  # whoever cancelled it knows why, and says what becomes of the message
        case Ending(is_asked_for=True) if not isinstance(verdict, Dead):
            level, trace = logging.INFO, None
        case Ending():  # what is lost to the queue is to be seen, also if it was asked for
            level, trace = logging.WARNING, None
        case _:
            level, trace = logging.ERROR, error
    log.log(level, *telling(message, verdict), exc_info=trace)
    return verdict
