"""Tests of json_of and text_of_reason: values as JSON, reasons as text, errors for values that cannot be sent."""

import datetime as dt
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from freezegun import freeze_time

from wakeq import errors
from wakeq.client.message import json_of, text_of_reason


def subclass_of(kind: type, *args: Any) -> object:
    """Return a value of a type that msgspec does not know."""
    return type(f"Own{kind.__name__}", (kind,), {})(*args)


@pytest.mark.parametrize(
    "plain",
    [
        "text",
        5,
        0.5,
        b"bytes",
        dt.datetime(2030, 1, 2, 3, 4, 5, 6),
        dt.date(2030, 1, 2),
        dt.time(3, 4, 5),
        dt.timedelta(days=1, seconds=2),
        Decimal("1.50"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_subclass_of_json_type_is_written_as_that_type(plain: Any) -> None:
    kind = type(plain)
    arguments: dict[type, Callable[[Any], tuple[Any, ...]]] = {
        dt.datetime: lambda value: (*value.timetuple()[:6], value.microsecond),
        dt.date: lambda value: value.timetuple()[:3],
        dt.time: lambda value: (value.hour, value.minute, value.second),
        dt.timedelta: lambda value: (value.days, value.seconds),
    }
    own = subclass_of(kind, *arguments.get(kind, lambda value: (value,))(plain))

    assert type(own) is not kind
    assert json_of({"of": [own]}) == msgspec.json.encode({"of": [plain]})


def test_dates_of_frozen_clock_are_written_as_dates() -> None:
    with freeze_time("2030-01-01 12:00:00"):
        written = json_of([dt.datetime.now(), dt.datetime.now(dt.UTC), dt.date.today()])

    now, utc, today = msgspec.json.decode(written, type=tuple[dt.datetime, dt.datetime, dt.date])
    assert (now, today) == (dt.datetime(2030, 1, 1, 12), dt.date(2030, 1, 1))
    assert utc == dt.datetime(2030, 1, 1, 12, tzinfo=dt.UTC)


def test_mapping_is_written_as_object() -> None:
    assert json_of(MappingProxyType({"a": 1})) == b'{"a":1}'


@pytest.mark.parametrize("value", [object(), {"a": [1 + 1j]}, deque([1]), {(1, 2): 3}, ValueError("x")])
def test_error_for_unserializable_value_names_its_type(value: object) -> None:
    with pytest.raises(errors.BadField, match=r"(object|complex|deque|tuple|ValueError) is not JSON-serializable"):
        json_of(value)


def test_lone_surrogate_is_refused() -> None:
    with pytest.raises(errors.BadField, match="UTF-8"):
        json_of({"name": "\ud800"})


def test_value_that_contains_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)

    with pytest.raises(errors.BadField, match="nested too deeply"):
        json_of(endless)


def test_exception_whose_str_fails_is_still_a_reason() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert text_of_reason(Mute()) == "Mute: (its text is not available: RuntimeError)"
