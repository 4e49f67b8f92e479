"""A process that records its mail, and a loop that turns on request: the runtime, seen step by step."""

from collections.abc import Callable
from typing import Any

from wakeq.actors.runtime import Process, Runtime


class Recorder(Process):
    """Keeps what it was told, in its own list or a shared one, and answers with it; raises what is an exception."""

    def __init__(self, got: list[Any] | None = None) -> None:
        super().__init__()
        self.got: list[Any] = [] if got is None else got

    def on_receive(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        self.got.append(message)
        return message


class Steps:
    """A call_soon that runs when told, one callback at a time."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []

    def __call__(self, callback: Callable[[], object]) -> None:
        self.waiting.append(callback)

    def run_one(self) -> None:
        self.waiting.pop(0)()


def serve_one(runtime: Runtime) -> None:
    """Give the next process on the run queue its turn, and no other."""
    turn_s, runtime._turn_s = runtime._turn_s, 1e-9
    try:
        runtime._serve_turn()
    finally:
        runtime._turn_s = turn_s
