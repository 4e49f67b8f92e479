"""Tests of parameters.py: a body is a JSON object of the parameters, read into the annotated types or refused."""

import json
from collections.abc import Callable, Sequence
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
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, SecretStr, computed_field

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
        ({"to": 5, "when": now}, "parameter to: expected str, got int"),
        ({"to": "a", "when": "soon"}, "parameter when: invalid RFC3339 encoded datetime"),
        ({"to": "a", "when": now, "copies": 0}, "parameter copies: expected int >= 1"),
        ({"to": "a", "when": now, "copies": None}, "parameter copies: expected int, got None"),
    ]

    for arguments, complaint in wrong:
        with pytest.raises(TypeError, match=f"send: {complaint}$"):
            parameters.encode((), arguments)
        with pytest.raises(InvalidBody):
            parameters.decode(json_of(arguments))


def test_unserializable_argument_is_refused_by_the_publisher() -> None:
    def send(to: Any) -> None: ...

    with pytest.raises(TypeError, match=r"send: parameter to: builtins\.object is not JSON-serializable"):
        Parameters(send).encode((object(),), {})


def test_misfit_inside_of_an_argument_is_refused_with_its_place() -> None:
    def send(to: Address, copies: list[int], by: dict[str, Colour]) -> None: ...

    wrong: list[tuple[dict[str, Any], str]] = [
        ({"to": Address("x", "y"), "copies": [], "by": {}}, r"parameter to\.number: expected int, got str"),
        ({"to": {"street": "x"}, "copies": [], "by": {}}, "parameter to: object missing required field number"),
        ({"to": Address("x", 1), "copies": [1, []], "by": {}}, r"parameter copies\[1\]: expected int, got list"),
        (
            {"to": Address("x", 1), "copies": [], "by": {"a": "blue"}},
            r"parameter by.*: invalid enum value 'blue'",
        ),
    ]

    for arguments, complaint in wrong:
        with pytest.raises(TypeError, match=f"send: {complaint}$"):
            Parameters(send).encode((), arguments)


class Line(BaseModel):
    model_config = ConfigDict(strict=True)

    sku: str
    count: int = 1
    since: datetime | None = None


class Order(BaseModel):
    number: int = Field(alias="no")
    lines: list[Line]
    place: Address

    @computed_field
    def size(self) -> int:
        return len(self.lines)


ORDER = Order(no=7, lines=[Line(sku="a", since=datetime(2026, 11, 18, tzinfo=UTC))], place=Address("x", 1))


def test_pydantic_models_are_read_as_they_were_published_wherever_they_stand() -> None:
    def handle(order: Order, spare: dict[str, Order], again: Order | None = None, lines: list[Line] = []) -> None: ...  # noqa: B006

    parameters = Parameters(handle)
    parameters.check()

    body = parameters.encode((ORDER, {"a": ORDER}), {"lines": ORDER.lines})

    assert json.loads(body)["order"] == {
        "no": 7,
        "lines": [{"sku": "a", "count": 1, "since": "2026-11-18T00:00:00Z"}],
        "place": {"street": "x", "number": 1},
    }
    assert parameters.decode(body) == {"order": ORDER, "spare": {"a": ORDER}, "lines": ORDER.lines}


def test_pydantic_model_that_does_not_fit_is_refused_in_one_line_by_publisher_and_worker() -> None:
    def handle(lines: list[Line]) -> None: ...

    parameters, words = Parameters(handle), r"not a valid Line: count: Input should be a valid integer"

    with pytest.raises(TypeError, match=rf"handle: parameter lines\[0\]: {words}$"):
        parameters.encode(([{"sku": "a", "count": "5"}],), {})
    with pytest.raises(InvalidBody, match=rf"the body does not fit .*handle\(.*: {words}"):
        parameters.decode(b'{"lines":[{"sku":"a","count":"5"}]}')


class Named(BaseModel):
    name: str


class Login(Named):
    password: SecretStr


class Draft(BaseModel):
    text: str
    note: str = Field(default="", exclude=True)


class Loose(BaseModel):
    value: Any
    note: str | None = Field(default=None, exclude=True)


class Team(BaseModel):
    members: list[Named]


@dataclass
class Note:
    draft: Draft


class Box(BaseModel, Generic[T]):
    item: T


class Handle:
    """A value without an equality of its own."""


class Rich(BaseModel):
    model_config = ConfigDict(extra="allow")

    sizes: Sequence[int]
    tags: set[str]
    at: datetime
    place: Address
    lines: RootModel[list[Line]]
    _handle: Handle = PrivateAttr(default_factory=Handle)


RICH = Rich.model_validate(
    {"sizes": (1, 2), "tags": {"a", "b"}, "at": "2026-11-18T00:00:00+01:00", "place": {"street": "x", "number": 1},
     "lines": [Line(sku="a")], "more": 5}
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (Login, Login(name="a", password=SecretStr("hunter2")), r"model\.password: .* SecretStr .* exclude=True"),
        (Any, Login(name="a", password=SecretStr("hunter2")), r"model\.password: .* SecretStr"),
        (Named, Login(name="a", password=SecretStr("hunter2")), "model: .* gets a Named, not a Login"),
        (Draft, Draft(text="a", note="b"), r"model\.note: .* exclude=True"),
        (Note, Note(Draft(text="a", note="b")), r"model\.draft\.note: "),
        (Loose, Loose(value=date(2026, 11, 18)), r"model\.value: a worker gets a str, not a date; annotate"),
        (Loose, Loose(value="a", note="b"), r"model\.note: .* exclude=True"),
        (dict[str, list[Draft]], {"x": [Draft(text="a"), Draft(text="a", note="b")]}, r"model\.x\.1\.note: "),
        (
            Team,
            Team(members=[Named(name="a"), Login(name="b", password=SecretStr("c"))]),
            r"model\.members\.1: .* Named",
        ),
    ],
)
def test_pydantic_model_that_a_worker_would_read_differently_is_refused_with_its_field(
    kind: Any, value: Any, words: str
) -> None:
    def handle(model: Any) -> None: ...

    handle.__annotations__["model"] = kind

    with pytest.raises(TypeError, match=f"handle: parameter {words}") as refused:
        Parameters(handle).encode((value,), {})

    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Rich, RICH), (Any, RICH), (list[Rich], [RICH]), (Box[int], Box(item=1)), (Box[int], Box[int](item=1)),
        (Named | None, Named(name="a")), (Draft, Draft(text="a")), (Named, {"name": "a"}),
        (dict[str, str], Named(name="a")),
    ],
)  # fmt: skip
def test_pydantic_model_that_a_worker_reads_as_it_was_is_published(kind: Any, value: Any) -> None:
    def handle(model: Any) -> None: ...

    handle.__annotations__["model"] = kind

    assert Parameters(handle).encode((value,), {})


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
