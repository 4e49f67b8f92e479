"""Tests of parameters.py: a body is a JSON object of the parameters, read into the annotated types or refused."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from typing import Annotated, Any, Generic, TypeVar
from uuid import UUID

import msgspec
import pytest
from freezegun import freeze_time
from hypothesis import given
from hypothesis import strategies as st

from wakeq.client.message import json_of
from wakeq.worker.parameters import BadHandler, InvalidBody, Parameters

T = TypeVar("T")


class Colour(Enum):
    RED = "red"


@dataclass
class Address:
    street: str
    number: int


def rich(to: str, when: datetime, key: UUID, colour: Colour, address: Address, tags: list[str] = []) -> None:  # noqa: B006
    """Takes one parameter of each type."""


def test_arguments_of_all_kinds_survive_the_round_trip() -> None:
    parameters = Parameters(rich)
    given: dict[str, Any] = {
        "to": "a@b.c",
        "when": datetime(2026, 11, 18, 11, tzinfo=UTC),
        "key": UUID(int=7),
        "colour": Colour.RED,
        "address": Address("Main", 5),
        "tags": ["x"],
    }

    body = parameters.encode((), given)

    assert parameters.decode(body) == given


def test_body_is_plain_json() -> None:
    def send(to: str, copies: int = 1) -> None: ...

    assert json.loads(Parameters(send).encode(("a@b.c",), {})) == {"to": "a@b.c"}
    assert json.loads(Parameters(send).encode((), {"copies": 2, "to": "a"})) == {"to": "a", "copies": 2}


def test_missing_field_is_left_to_the_default_of_the_handler() -> None:
    def send(to: str, copies: int = 1, anything=None) -> None: ...  # type: ignore[no-untyped-def]

    assert Parameters(send).decode(b'{"to":"a"}') == {"to": "a"}
    assert Parameters(send).decode(b'{"to":"a","anything":[1]}') == {"to": "a", "anything": [1]}


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b'{"to":5}', "Expected `str`, got `int` - at `$.to`"),
        (b"{}", "missing required field `to`"),
        (b'{"to":"a","cc":"b"}', "unknown field `cc`"),
        (b'["a"]', "Expected `object`, got `array`"),
        (b"to: ada", "malformed"),
        (b"\xff\xfe", "malformed|utf-8|invalid"),
        (b"", "truncated"),
    ],
)
def test_error_for_invalid_body_names_the_field(body: bytes, complaint: str) -> None:
    def send(to: str) -> None: ...

    with pytest.raises(InvalidBody, match="(?i)" + complaint.replace("$", r"\$")):
        Parameters(send).decode(body)


def positional(to: str, /) -> None: ...
def many(*to: str) -> None: ...
def named(**fields: str) -> None: ...


@pytest.mark.parametrize("handler", [positional, many, named])
def test_parameter_that_cannot_be_passed_by_name_is_refused_at_once(handler: Callable[..., None]) -> None:
    with pytest.raises(BadHandler, match=f"{handler.__name__}: the parameter .* give each parameter a name"):
        Parameters(handler)


def test_wrong_arguments_are_refused_by_the_publisher() -> None:
    def send(to: str) -> None: ...

    with pytest.raises(TypeError, match=r"^\S+: got an unexpected keyword argument"):
        Parameters(send).encode((), {"to": "a", "too": "a"})
    with pytest.raises(TypeError, match=r"^\S+: missing a required argument"):
        Parameters(send).encode((), {})


def test_error_for_invalid_body_shows_the_types_of_string_annotations() -> None:
    def send(to: "str", copies: "list[int] | None" = None) -> "None": ...

    with pytest.raises(InvalidBody, match=r"send\(to: str, copies: list\[int\] \| None = None\): "):
        Parameters(send).decode(b"{}")


def test_argument_of_wrong_type_is_refused_by_the_publisher() -> None:
    def send(to: str, when: datetime, copies: Annotated[int, msgspec.Meta(ge=1)] = 1) -> None: ...

    parameters, now = Parameters(send), datetime(2026, 11, 18, tzinfo=UTC)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"to": 5, "when": now}, r"Expected `str`, got `int` - at `\$.to`"),
        ({"to": "a", "when": "soon"}, r"Invalid RFC3339 encoded datetime - at `\$.when`"),
        ({"to": "a", "when": now, "copies": 0}, r"Expected `int` >= 1 - at `\$.copies`"),
        ({"to": "a", "when": now, "copies": None}, r"got `null` - at `\$.copies`"),
    ]

    for arguments, complaint in wrong:
        with pytest.raises(
            TypeError, match=rf"send: the arguments cannot be a message: .*send\(to: str, .*{complaint}"
        ):
            parameters.encode((), arguments)
        with pytest.raises(InvalidBody):
            parameters.decode(json_of(arguments))


def test_unserializable_argument_is_refused_by_the_publisher() -> None:
    def send(to: Any) -> None: ...

    with pytest.raises(TypeError, match=r"send: the arguments cannot be a message: .*object"):
        Parameters(send).encode((object(),), {})


def test_unserializable_parameter_type_is_found_before_work_begins() -> None:
    class Connection: ...

    def send(over: Connection) -> None: ...

    with pytest.raises(BadHandler, match=r"parameter over: .*Connection.* is not JSON-serializable"):
        Parameters(send).check()


def test_undefined_annotation_is_found_before_work_begins() -> None:
    def send(to: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(BadHandler, match="Missing"):
        Parameters(send).check()


def anything(first: Any, second: list[Any], third: dict[str, int | None]) -> None: ...


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(first=JSON, second=st.lists(JSON), third=st.dictionaries(st.text(), st.none() | st.integers(0, 2**63 - 1)))
def test_json_values_survive_the_round_trip(first: Any, second: list[Any], third: dict[str, int | None]) -> None:
    parameters = Parameters(anything)
    given_arguments = {"first": first, "second": second, "third": third}

    assert parameters.decode(parameters.encode((), given_arguments)) == given_arguments


@given(body=st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_garbage_raises_invalid_body_and_nothing_else(body: bytes) -> None:
    with pytest.raises(InvalidBody):
        Parameters(anything).decode(body)


def test_too_deeply_nested_body_is_invalid() -> None:
    with pytest.raises(InvalidBody):
        Parameters(anything).decode(b'{"first":' + b"[" * 100_000)


def test_dates_of_a_frozen_clock_are_dates() -> None:
    def bill(at: datetime, on: date) -> None: ...

    with freeze_time("2030-01-02"):
        body = Parameters(bill).encode((datetime.now(UTC), date.today()), {})

    assert Parameters(bill).decode(body) == {"at": datetime(2030, 1, 2, tzinfo=UTC), "on": date(2030, 1, 2)}


def test_annotations_resolved_under_a_frozen_clock_accept_dates() -> None:
    """String annotations, and from Python 3.14 on all, then refer to the types of the frozen clock."""

    def bill(at: "datetime", on: "list[date]") -> None: ...

    with freeze_time("2030-01-02"):
        parameters = Parameters(bill)
        parameters.check()
        body = parameters.encode((datetime.now(UTC), [date.today()]), {})
        arguments = parameters.decode(body)

    parameters.check()
    assert arguments == {"at": datetime(2030, 1, 2, tzinfo=UTC), "on": [date(2030, 1, 2)]}


def test_invalid_date_is_refused_under_a_frozen_clock_too() -> None:
    def bill(at: "datetime") -> None: ...

    with freeze_time("2030-01-02"), pytest.raises(InvalidBody, match=r"at"):
        Parameters(bill).decode(b'{"at": "soon"}')


class Parcel:
    """A type that JSON cannot express."""


class Crate(Parcel, Generic[T]):
    """A generic type that JSON cannot express."""


def test_body_for_unserializable_list_items_is_invalid() -> None:
    def send(parcels: list[Parcel]) -> None: ...

    with pytest.raises(InvalidBody, match="Parcel"):
        Parameters(send).decode(b'{"parcels": [1]}')


def test_unserializable_generic_or_annotated_type_is_refused() -> None:
    def sized(parcel: Crate[int]) -> None: ...

    def named(parcel: Annotated[Parcel, "heavy"]) -> None: ...

    def several(crates: list[Crate[int]]) -> None: ...

    for handler in (sized, named):
        with pytest.raises(BadHandler, match="is not JSON-serializable"):
            Parameters(handler).check()
    with pytest.raises(InvalidBody, match="Crate"):
        Parameters(several).decode(b'{"crates": [1]}')
