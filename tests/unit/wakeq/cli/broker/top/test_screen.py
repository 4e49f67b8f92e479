"""The screen of `wakeq top`: order, filter, scrolling, and what fits into a narrow terminal."""

import io
import re
from typing import Any

import msgspec
import pytest
from rich.console import Console

from tests.helpers.readings import queue, reading
from wakeq.cli.broker.top.measure import COLUMNS, Measure
from wakeq.cli.broker.top.screen import LETTERS, OTHER_LINES, TopScreen
from wakeq.http.api.events import EventsQuery

QUEUES = (
    queue("emails", ready=30, delayed=1, oldest_ready_ms=1_000),
    queue("Invoices", ready=20, leased=9, oldest_ready_ms=500),
    queue("orders", ready=5, delayed=7, paused_until_ms=1),
    queue("", ready=0),
)


def measured(*queues: dict[str, Any], total: int | None = None) -> Measure:
    made = Measure()
    made.add(reading(2_000, *queues, total=total))
    return made


def names(screen: TopScreen) -> list[str]:
    return [row["queue"] for row in screen.chosen(measured(*QUEUES).rows())]


def pressed(*keys: str) -> TopScreen:
    screen = TopScreen()
    for key in keys:
        assert screen.press(key)
    return screen


def lines(screen: TopScreen, measure: Measure, width: int = 120, height: int = 30) -> list[str]:
    output = io.StringIO()
    console = Console(file=output, width=width, color_system=None)
    console.print(screen.draw(measure, width, height))
    return output.getvalue().splitlines()


def test_columns_each_have_a_letter_of_their_name() -> None:
    assert sorted(LETTERS.values()) == sorted(COLUMNS)
    assert all(letter in column for letter, column in LETTERS.items())
    assert not set(LETTERS) & {"q", "v", "f", "/", " "}


@pytest.mark.parametrize(
    ("keys", "order"),
    [
        ((), ["emails", "Invoices", "orders", '""']),
        (("v",), ['""', "orders", "Invoices", "emails"]),
        (("d",), ["orders", "emails", "Invoices", '""']),
        (("d", "d"), ["Invoices", '""', "emails", "orders"]),
        (("d", "v"), ["Invoices", '""', "emails", "orders"]),
        (("u",), ['""', "emails", "Invoices", "orders"]),
        (("u", "u"), ["orders", "Invoices", "emails", '""']),
        # The oldest message first; queues without one last.
        (("o",), ["Invoices", "emails", "orders", '""']),
        # A queue without a state comes last in both directions.
        (("s",), ["orders", "emails", "Invoices", '""']),
        (("s", "s"), ["orders", "emails", "Invoices", '""']),
        (("d", "f"), ["emails", "Invoices", "orders", '""']),
        # The first column is the name, and before it comes the order of the broker.
        (("right",), ['""', "emails", "Invoices", "orders"]),
        (("right", "right", "right"), ["orders", "emails", "Invoices", '""']),
        (("left",), ["orders", "emails", "Invoices", '""']),
        (("right", "left"), ["emails", "Invoices", "orders", '""']),
    ],
)
def test_keys_sort_the_queues(keys: tuple[str, ...], order: list[str]) -> None:
    assert names(pressed(*keys)) == order


def test_filter_finds_a_part_of_the_name_until_escape() -> None:
    screen = pressed("/", "O", "x")
    assert names(screen) == []

    screen.press("backspace")
    assert names(screen) == ["Invoices", "orders"]

    # Letters are keys again after Enter.
    screen.press("enter")
    screen.press("d")
    assert names(screen) == ["orders", "Invoices"]

    screen.press("escape")
    assert len(names(screen)) == 4


def test_q_ends_the_command_but_not_while_a_filter_is_typed() -> None:
    assert pressed("/").press("q")
    assert not TopScreen().press("q")


@pytest.mark.parametrize(
    ("keys", "wishes"),
    [
        ((), {"sort": "messages", "ascending": "false"}),
        (("v",), {"sort": "messages", "ascending": "true"}),
        (("u",), {"sort": "name", "ascending": "true"}),
        (("u", "u"), {"sort": "name", "ascending": "false"}),
        (("i",), {"sort": "published", "ascending": "false"}),
        (("s", "s"), {"sort": "attention", "ascending": "false"}),
        # The broker has no such order.
        (("b",), {"sort": "messages", "ascending": "false"}),
        (("/", "a", "b"), {"sort": "messages", "ascending": "false", "contains": "ab"}),
    ],
)
def test_broker_is_asked_for_the_first_queues_of_the_order(keys: tuple[str, ...], wishes: dict[str, str]) -> None:
    asked = pressed(*keys).wishes()

    assert asked == wishes
    # The broker understands them.
    msgspec.convert(asked, EventsQuery, strict=False)


def test_unknown_keys_change_nothing() -> None:
    assert names(pressed("x", "Q", "enter", "backspace", "\x00")) == names(TopScreen())


def test_list_scrolls_and_stays_within_its_ends() -> None:
    many = measured(*(queue(f"q{number:02}", ready=100 - number) for number in range(50)))
    height = OTHER_LINES + 10

    def shown(screen: TopScreen) -> list[str]:
        return re.findall(r"q\d\d", "\n".join(lines(screen, many, height=height)))

    screen = TopScreen()
    assert shown(screen) == [f"q{number:02}" for number in range(10)]
    for key, first in (
        ("down", 1),
        ("page down", 11),
        ("up", 10),
        ("end", 40),
        ("down", 40),
        ("page up", 30),
        ("home", 0),
        ("up", 0),
    ):
        screen.press(key)
        assert shown(screen)[0] == f"q{first:02}", key
    assert len(lines(screen, many, height=height)) == height
    assert "1 to 10 of 50 queues" in lines(screen, many, height=height)[1]


def test_error_filter_and_limit_are_said_above_the_list() -> None:
    screen = pressed("/", "e", "enter", " ")
    assert lines(screen, measured(*QUEUES, total=900))[1] == (
        "3 queues whose name contains e (the first 4 of 900) - held; space goes on"
    )
    assert screen.is_held

    measure = measured(*QUEUES)
    measure.add(measure.last | {"error": "no broker\x1b answers"})
    assert lines(screen, measure)[1] == "no broker\\x1b answers"


def test_broker_alone_speaks_of_no_term() -> None:
    alone, three = measured(*QUEUES), Measure()
    many = reading(2_000, *QUEUES)
    three.add(many | {"cluster": many["cluster"] | {"members": [{}, {}, {}]}})

    assert "term" not in lines(TopScreen(), alone)[0]
    assert lines(TopScreen(), three)[0].startswith("role leader   term 1")


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_columns_are_dropped_before_a_value_is_broken(width: int) -> None:
    full = queue(
        "emails-of-the-whole-company", ready=28_000, delayed=5, leased=1_000, subscribers=12, paused_until_ms=1
    )
    made = lines(TopScreen(), measured(full), width)

    heads, row = made[3].split(), made[5].split()
    assert set(heads) <= set(COLUMNS)
    assert {"queue", "ready", "leased"} <= set(heads)
    values = {"ready": "28000", "delayed": "5", "leased": "1000", "oldest": "-", "workers": "12", "state": "paused"}
    assert row[1:] == [values.get(head, "0.0") for head in heads[1:]]
    assert max(map(len, made)) <= width
