"""Copies: processes that handlers make of this one by os.fork(), and what ends them.

    fork_count() --> the handler runs, and may fork --> exit_if_forked(fork_count before): only the original goes on

A copy has the worker's pipes, its sockets and its jobs that wait, and would go on as a second worker: handle what is
handled here, answer what was asked of its parent, and keep a connection open that nobody reads.  So it ends where the
handler does, as a program would; one that exec replaces, or that ends itself, never comes back here.
"""

import os
import sys
import traceback
from contextlib import suppress

_forks = 0


def fork_count() -> int:
    """How many fork_count lie between the first process and this one."""
    return _forks


def exit_if_forked(before: int, error: BaseException | None = None) -> None:
    """Return if this is the process in which there were so many fork_count before; else end it, with or without an error."""
    if before != _forks:
        with suppress(Exception):  # what it says may be lost with its terminal; its end must not be
            _say(error)
        os._exit(_status_of(error))


def _say(error: BaseException | None) -> None:
    match error:
        case None | SystemExit(code=None | int()):
            pass
        case SystemExit():
            print(error.code, file=sys.stderr)
        case _:
            traceback.print_exception(error)
    sys.stdout.flush()
    sys.stderr.flush()


def _status_of(error: BaseException | None) -> int:
    match error:
        case None | SystemExit(code=None):
            return 0
        case SystemExit(code=int(code)):
            return code & 0xFF
        case _:
            return 1


def _count() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count)
