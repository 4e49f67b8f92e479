"""The recorder sees the functions of one package that are called, and nothing else; here the package is this file."""

import json
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from bench.tour import recorder
from bench.tour.recorder import Call, Mark, Recorder, Way

FILE = "tests/unit/bench/tour/test_recorder.py"


@pytest.fixture(autouse=True)
def _this_file_is_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "PACKAGE", __file__)


def nobody(_frame: FrameType) -> None:
    """No call is a turn."""


def seen(*works: Callable[[], object], turn_of: Callable[[FrameType], object | None] = nobody) -> Way:
    one = Recorder(turn_of, {write.__code__: "written"})
    for work in works:
        with one.see():
            work()
    return one.way


def calls(way: Way) -> list[tuple[str, int]]:
    return [(step.function.name, step.depth) for step in way.steps if isinstance(step, Call)]


# What is recorded


def outer() -> None:
    inner()
    inner()


def inner() -> None:
    json.dumps([1])  # of another package


def fails() -> None:
    try:
        raises()
    except ValueError:
        inner()


def raises() -> None:
    raise ValueError("on purpose")


def adds() -> int:
    return sum(square(number) for number in (1, 2))


def square(number: int) -> int:
    return number * number


def steps() -> Iterator[int]:
    yield 1
    yield 2


def exhausts() -> None:
    list(steps())


def nests() -> None:
    def helper() -> None:
        inner()

    helper()


class Queue:
    """What a turn is given to."""


def serve(runtime: object, process: object) -> None:
    inner()
    write()


def write() -> None:
    """Stands for the write of a socket."""


def turns() -> None:
    serve(None, Queue())
    serve(None, Queue())


# Tests


def test_calls_are_recorded_in_their_order_with_their_depth() -> None:
    assert calls(seen(outer)) == [("outer", 0), ("inner", 1), ("inner", 1)]


def test_function_is_listed_once_with_its_file() -> None:
    way = seen(outer)

    assert [(function.name, function.file) for function in way.functions] == [("outer", FILE), ("inner", FILE)]
    assert way.files == [FILE]


def test_functions_of_other_packages_do_not_count() -> None:
    assert seen(inner).calls == 1


def test_depth_is_right_behind_an_exception() -> None:
    assert calls(seen(fails)) == [("fails", 0), ("raises", 1), ("inner", 1)]


def test_generator_expression_counts_and_belongs_to_its_function() -> None:
    way = seen(adds)

    assert calls(way) == [("adds", 0), ("square", 1), ("square", 1)]
    assert way.calls == 6  # the expression begins, goes on, and ends


def test_generator_steps_are_calls() -> None:
    assert calls(seen(exhausts)) == [("exhausts", 0), ("steps", 1), ("steps", 1), ("steps", 1)]


def test_function_within_another_is_named_with_it() -> None:
    assert ("helper in nests", 1) in calls(seen(nests))


def test_turn_is_marked_and_its_calls_begin_at_the_left() -> None:
    def turn_of(frame: FrameType) -> object | None:
        return frame.f_locals["process"] if frame.f_code is serve.__code__ else None

    way = seen(turns, turn_of=turn_of)

    turn = [Mark("turn of Queue"), ("serve", 0), ("inner", 1), Mark("written")]
    told = [(step.function.name, step.depth) if isinstance(step, Call) else step for step in way.steps]
    assert told == [("turns", 0), *turn, *turn]
    assert way.turns == 2


def test_several_works_make_one_way() -> None:
    way = seen(outer, inner)

    assert calls(way)[-1] == ("inner", 0)
    assert way.calls == 4
