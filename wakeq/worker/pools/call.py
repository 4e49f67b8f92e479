"""call, call_async: run the handler of a task with one message and return the outcome.

Whatever a handler does ends here as an Outcome, even sys.exit(): no exception reaches the thread, loop or process that
runs it. The return value of a handler is checked before its message counts as done: an awaitable is awaited, and a
generator is a failure, because nothing of it has run. A copy of the process that a handler made with os.fork() ends
here, too. This file talks to no broker; wakeq.testing and the child processes use the same functions.
"""

import asyncio
import logging
import os
import random
import sys
import traceback
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack, suppress
from contextvars import copy_context
from inspect import isasyncgen, isawaitable, isgenerator
from typing import Any

from wakeq.client.message import Received, text_of_reason
from wakeq.worker import tracing
from wakeq.worker.context import CURRENT, Current, LogContext, message_of
from wakeq.worker.outcome import Dead, HandlerDecision, NotDone, Outcome, log_arguments, outcome_of
from wakeq.worker.parameters import BadHandler, InvalidBody, name_of
from wakeq.worker.task import INSTEAD_OF_YIELD, Task

log = logging.getLogger("wakeq.worker")

# The number of forks between the first process and this one.
_forks = 0


log.addFilter(LogContext())


def call(task: Task[..., Any], message: Received, drawn: Callable[[], float] = random.random) -> Outcome:
    """Run a plain handler and return the outcome; `drawn` gives the random number for the jitter of a delay."""
    return copy_context().run(_call, task, message, drawn)


def _call(task: Task[..., Any], message: Received, drawn: Callable[[], float]) -> Outcome:
    before = _forks
    try:
        outcome: Outcome = _run(task, message).done()
    except BaseException as error:
        exit_if_forked(before, error)
        outcome = _logged_outcome(error, task, message, drawn)
    exit_if_forked(before)
    return outcome


async def call_async(task: Task[..., Any], message: Received, drawn: Callable[[], float] = random.random) -> Outcome:
    """Run a coroutine handler and return the outcome. Must run in an asyncio.Task of its own."""
    before = _forks
    try:
        outcome: Outcome = (await run_async(task, message)).done()
    except BaseException as error:
        exit_if_forked(before, error)
        outcome = _logged_outcome(error, task, message, drawn)
    exit_if_forked(before)
    return outcome


def run(task: Task[..., Any], message: Received) -> Current:
    """Run a plain handler in a context of its own. Exceptions of the handler are raised."""
    return copy_context().run(_run, task, message)


def _run(task: Task[..., Any], message: Received) -> Current:
    current = Current(message)
    CURRENT.set(current)
    with tracing.handling(message, parent=task.trace_parent):
        if task.hooks.middleware:
            with ExitStack() as stack:
                task.hooks.enter_middleware(current, stack)
                _finish(task, _start(task, message))
        else:
            _finish(task, _start(task, message))
    return current


def _finish(task: Task[..., Any], returned: object) -> None:
    """Drop the return value of a plain handler, unless it is work that has not been done yet."""
    if returned is not None:
        if isawaitable(returned):
            returned = asyncio.run(_awaited(returned))
        _refuse_generator(task, returned)


async def run_async(task: Task[..., Any], message: Received) -> Current:
    """Run a coroutine handler in the context of this asyncio.Task. Exceptions of the handler are raised."""
    current = Current(message)
    CURRENT.set(current)
    with tracing.handling(message, parent=task.trace_parent):
        if task.hooks.middleware:
            async with AsyncExitStack() as stack:
                await task.hooks.enter_middleware_async(current, stack)
                _refuse_generator(task, await _awaited(_start(task, message)))
        else:
            _refuse_generator(task, await _awaited(_start(task, message)))
    return current


def _start(task: Task[..., Any], message: Received) -> object:
    """Call the handler of a task and return its return value."""
    resources = task.resource_values() if task.resources else {}
    if task.takes_message:
        return task.handler(message_of(message), **resources)
    return task.handler(**task.arguments_of(message.body), **resources)


async def _awaited(returned: object) -> object:
    """Await the return value of a handler until it is a plain value."""
    while isawaitable(returned):
        returned = await returned
    return returned


def _refuse_generator(task: Task[..., Any], returned: object) -> None:
    """Raise BadHandler if a handler returned a generator: its body has not run."""
    if isgenerator(returned) or isasyncgen(returned):
        raise BadHandler(f"{name_of(task.handler)} returned a generator, and nothing of it has run; {INSTEAD_OF_YIELD}")


def _was_cancelled() -> bool:
    """Return whether the running task was cancelled from outside; its own code may also raise CancelledError."""
    try:
        task = asyncio.current_task()
    # In a thread or process there is no cancellation.
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0


def _logged_outcome(
    error: BaseException, task: Task[..., Any], message: Received, drawn: Callable[[], float]
) -> Outcome:
    """Return the outcome for a handler that raised, and log it."""
    if isinstance(error, InvalidBody):
        outcome: NotDone = Dead(text_of_reason(str(error)))
    else:
        outcome = outcome_of(error, task.retry, failures=message.failures, drawn=drawn())
    match error:
        case InvalidBody():
            level, trace = logging.ERROR, None
        case asyncio.CancelledError() if _was_cancelled():
            # The code that cancelled the handler logs the reason.
            level, trace = logging.DEBUG, None
        case HandlerDecision(is_deliberate=True) if not isinstance(outcome, Dead):
            level, trace = logging.INFO, None
        # A dead letter must be visible in the log, even if the handler asked for it.
        case HandlerDecision():
            level, trace = logging.WARNING, None
        case _:
            level, trace = logging.ERROR, error
    log.log(level, *log_arguments(message, outcome), exc_info=trace)
    return outcome


def exit_if_forked(before: int, error: BaseException | None = None) -> None:
    """Return if this process has not been forked since `before`; else exit, with the error if there is one.

    A copy has the worker's pipes, sockets and waiting jobs, and would go on as a second worker: it would handle
    messages that the original handles, too, and answer requests that were sent to its parent. So a copy ends where its
    handler ends, with the exit status of a program. A copy that calls exec, or that exits, never returns here.
    """
    if before == _forks:
        return
    # The output may fail together with the terminal; the exit must not.
    with suppress(Exception):
        match error:
            case None | SystemExit(code=None | int()):
                pass
            case SystemExit():
                print(error.code, file=sys.stderr)
            case _:
                traceback.print_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(_exit_status(error))


def _exit_status(error: BaseException | None) -> int:
    match error:
        case None | SystemExit(code=None):
            return 0
        case SystemExit(code=int(code)):
            return code & 0xFF
        case _:
            return 1


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)
