"""Tasks that a spawned process can import, for test_processes.py."""

import functools
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from wakeq import Retry, current, resource
from wakeq.worker import Current, Worker

worker = Worker()
# The set-up calls in this process.
set_up: list[str] = []


def set_up_by(whom: str) -> None:
    set_up.append(whom)


hooked = Worker()
# What the hooks of this process did.
hooks: list[str] = []


@contextmanager
def database() -> Iterator[str]:
    hooks.append("opened")
    yield "database"


@hooked.middleware
@contextmanager
def noting(message: Current) -> Iterator[None]:
    hooks.append(f"before {message.uid}")
    yield


@hooked.task("hooks", mode="process")
def send_hooks(db: str = resource(database)) -> None:
    current().then("hooks", [*hooks, db, os.getpid()])


closing = Worker()


@contextmanager
def closing_slowly() -> Iterator[None]:
    """Write a file when it has closed, which takes a moment."""
    yield
    threading.Event().wait(0.1)
    Path(os.environ["CLOSED_FILE"]).touch()


@closing.task("closes", mode="process")
def use_what_closes(value: None = resource(closing_slowly)) -> None: ...


@worker.task("set-ups", mode="process")
def send_set_up() -> None:
    current().then("set-ups", set_up)


@worker.task("pids", mode="process")
def send_pid() -> None:
    current().then("pids", os.getpid())


@worker.task("ends", mode="process", retry=Retry(max=1, delay=4, jitter=0))
def end(how: str) -> None:
    match how:
        case "return":
            return
        case "raise":
            raise ValueError("no")
        case "sys.exit":
            sys.exit(3)
        case "os._exit":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        case "terminate":
            os.kill(os.getpid(), signal.SIGTERM)
        case _:
            # Spin.
            while True:
                pass


def through(handler: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    @functools.wraps(handler)
    def wrapper() -> Awaitable[None]:
        return handler()

    return wrapper


@worker.task("decorated", mode="process")
@through
async def decorated() -> None:
    current().then("decorated", "the body has run")


@worker.task("lazy", mode="process")
def lazy() -> Iterator[int]:
    return (number for number in range(3))
