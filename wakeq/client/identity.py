"""Identity: what a client says of itself in HELLO, so that operators see more of it than its address.

    the process --> of_client --> Hello          the tasks of a worker --> of_worker --> Hello

It is asked for at each connection, because a fork changes the process. Texts that are too long are cut, and what else
does not fit is left out: an identity must never keep a client from connecting, not even to an older broker.
"""

import os
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from wakeq import __version__
from wakeq.protocol.wire.worker.codec import Hello, Recurring
from wakeq.protocol.wire.worker.commands import CONCURRENCY_MAX, IDENTITY_CHARS_MAX, SCHEDULES_MAX, TASKS_MAX
from wakeq.protocol.wire.worker.identity import IDENTITY_BYTES_MAX

VERSIONS = {"wakeq": __version__, "python": ".".join(map(str, sys.version_info[:3]))}


def of_client(name: str | None = None) -> Hello:
    """Return the identity of this process."""
    return Hello(host=_text(socket.gethostname()), pid=os.getpid(), name=_text(name or _program()), versions=VERSIONS)


def of_worker(name: str | None, *, concurrency: int, tasks: Iterable[str], schedules: Iterable[Recurring]) -> Hello:
    """Return the identity of a program that processes messages, with as many tasks and schedules as fit."""
    hello = replace(
        of_client(name),
        concurrency=concurrency if concurrency <= CONCURRENCY_MAX else None,
        tasks=[_text(task) for task in tasks][:TASKS_MAX],
        schedules=[one for given in schedules if (one := _recurring(given))][:SCHEDULES_MAX],
    )
    while len(msgspec.msgpack.encode(hello)) > IDENTITY_BYTES_MAX:
        tasks, schedules = hello.tasks or [], hello.schedules or []
        hello = replace(hello, tasks=tasks[: len(tasks) * 3 // 4], schedules=schedules[: len(schedules) * 3 // 4])
    return hello


def _recurring(given: Recurring) -> Recurring | None:
    """Return a schedule that can be sent; None if there is none: a cron text that is cut would be another one."""
    one = replace(given, name=_text(given.name))
    try:
        sent = msgspec.json.decode(msgspec.json.encode(one), type=Recurring)
    except (msgspec.ValidationError, UnicodeError):
        return None
    return None if (sent.cron is None) == (sent.every is None) else sent


def _program() -> str:
    """Return the name of the program; `python -m package` shows the package."""
    path = Path(sys.argv[0] if sys.argv else "")
    return path.parent.name if path.name == "__main__.py" else path.name or "python"


def _text(text: str) -> str:
    """Return text that can be sent: a name of the system need not be Unicode."""
    return text.encode("utf-8", "backslashreplace").decode()[:IDENTITY_CHARS_MAX]
