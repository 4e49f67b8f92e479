"""Forks: ends the copies of this process that a handler makes with os.fork().

    fork_count() --> the handler runs, and may fork --> exit_if_forked(count before): only the original continues

A copy has the worker's pipes, sockets and waiting jobs, and would go on as a second worker. It would handle messages
that the original handles, too, answer requests that were sent to its parent, and keep connections open. So a copy ends
where its handler ends, with the exit status of a program. A copy that calls exec, or that exits, never returns here.
"""

import os
import sys
import traceback
from contextlib import suppress

_forks = 0


def fork_count() -> int:
    """Return the number of forks between the first process and this one."""
    return _forks


def exit_if_forked(before: int, error: BaseException | None = None) -> None:
    """Return if this process has not been forked since `before`; else exit, with the error if there is one."""
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
