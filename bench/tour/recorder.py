"""Recorder: sees each call of a function of wakeq while something is done.

    with recorder.see(): ... --> way: calls with their depth, turns of the run queue, writes to a socket

What counts is a frame that begins to run, or goes on, as for cProfile: a comprehension and a generator that is asked
for its next value are calls too, but the function in which they stand is what is listed.  Functions of C, of the
standard library and of other packages do not count.  Nothing is measured by a clock.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import wakeq

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = f"{Path(wakeq.__file__).parent}/"  # as its code objects spell it
WITHIN = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}  # what is part of the function in which it stands


@dataclass(frozen=True, slots=True)
class Function:
    """A function of wakeq: its qualified name, and its file in the repository."""

    name: str
    file: str


@dataclass(frozen=True, slots=True)
class Call:
    """One call; `depth` counts the functions of wakeq around it, since the last mark."""

    function: Function
    depth: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Something else that happened: a turn begins, bytes are written."""

    text: str


Step = Call | Mark


@dataclass(slots=True)
class Way:
    """The recorded steps, in their order.  `calls_by_file` counts all calls, also those that `steps` does not list."""

    steps: list[Step] = field(default_factory=list)
    calls_by_file: Counter[str] = field(default_factory=Counter)
    turns: int = 0

    @property
    def calls(self) -> int:
        """All of them."""
        return self.calls_by_file.total()

    @property
    def functions(self) -> list[Function]:
        """The functions, in the order of their first calls."""
        return list(dict.fromkeys(step.function for step in self.steps if isinstance(step, Call)))

    @property
    def files(self) -> list[str]:
        """Their files, in the same order."""
        return list(dict.fromkeys(function.file for function in self.functions))


class Recorder:
    """`turn_of` tells whose turn begins with a call, if one does; `marks` are functions and what they mean."""

    def __init__(self, turn_of: Callable[[FrameType], object | None], marks: Mapping[CodeType, str]) -> None:
        self.way = Way()
        self._turn_of = turn_of
        self._marks = marks
        self._known: dict[CodeType, Function | None] = {}
        self._depths: list[int] = []  # of the frames of wakeq that have not returned
        self._next_depth = 0

    @contextmanager
    def see(self, text: str = "") -> Iterator[None]:
        """See what is called in the block; `text` says what is done there.  More blocks make the same way longer."""
        if text:
            self.way.steps.append(Mark(text))
        self._depths, self._next_depth = [], 0
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, _: Any) -> None:
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if code in self._marks:
            if event == "call":
                self.way.steps.append(Mark(self._marks[code]))
            return
        function = self._known[code] if code in self._known else self._know(code)
        if function is None:
            return
        is_listed = code.co_name not in WITHIN
        if event == "call":
            self._begin(frame, function, is_listed=is_listed)
        elif self._depths and is_listed:
            self._next_depth = self._depths.pop()

    def _begin(self, frame: FrameType, function: Function, *, is_listed: bool) -> None:
        self.way.calls_by_file[function.file] += 1
        if not is_listed:
            return
        depth = self._next_depth
        self._depths.append(depth)
        served = self._turn_of(frame)
        if served is not None:
            self.way.turns += 1
            self.way.steps.append(Mark(f"turn of {type(served).__name__}"))
            depth = 0
        self.way.steps.append(Call(function, depth))
        self._next_depth = depth + 1

    def _know(self, code: CodeType) -> Function | None:
        file = code.co_filename
        function = None
        if file.startswith(PACKAGE):
            function = Function(_readable(code.co_qualname), _place_of(Path(file)))
        self._known[code] = function
        return function


def _readable(qualname: str) -> str:
    """`inner in outer` for a function that stands in another one."""
    *outer, name = qualname.split(".<locals>.")
    name = name.replace("<lambda>", "lambda")
    return f"{name} in {outer[-1]}" if outer else name


def _place_of(file: Path) -> str:
    """The rooms beside wakeq/ are reached by links inside of it."""
    return file.resolve().relative_to(ROOT).as_posix()
