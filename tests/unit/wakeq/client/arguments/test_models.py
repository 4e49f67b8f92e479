"""Tests of models.py: pydantic's models as bodies, without an import of pydantic."""

import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, Field

from wakeq.client.arguments.models import is_model, read, written
from wakeq.client.message import bytes_of_body, canonical_json_of
from wakeq.protocol.errors import BadField


class Point(BaseModel):
    x: int
    tags: set[str] = set()


class Frozen(BaseModel, frozen=True):
    x: int


@pytest.mark.parametrize("value", [Point(x=1), {"a": [Point(x=1)]}, (Point(x=1), None)])
def test_model_is_a_body_wherever_it_stands(value: Any) -> None:
    body = bytes_of_body(value)

    assert b'{"x":1,"tags":[]}' in body
    assert json.loads(canonical_json_of(value)) == json.loads(body)


class Places(BaseModel):
    found: set[Frozen]
    order: list[int] = [3, 1, 2]


def test_sets_of_a_model_are_sorted_in_canonical_json_and_lists_are_not() -> None:
    assert canonical_json_of(Point(x=1, tags=set("gfedcba"))) == b'{"tags":["a","b","c","d","e","f","g"],"x":1}'
    assert b'"order":[3,1,2]' in canonical_json_of(Places(found=set()))


def test_model_whose_sets_cannot_be_sorted_has_no_canonical_json() -> None:
    with pytest.raises(BadField, match="use a list, not a set"):
        canonical_json_of(Places(found={Frozen(x=1), Frozen(x=2)}))


def test_model_that_was_written_is_read_again() -> None:
    point = Point(x=1, tags={"a"})

    assert read(Point, written(point)) == point


class Amount(BaseModel):
    value: int = Field(validation_alias="amount")
    unit: str = Field(alias="in")
    within: "Amount | None" = None


def test_model_with_a_validation_alias_is_read_as_it_was_written_and_by_its_aliases() -> None:
    amount = Amount.model_validate({"amount": 3, "in": "EUR", "within": {"amount": 4, "in": "USD"}})

    assert written(amount) == {"value": 3, "in": "EUR", "within": {"value": 4, "in": "USD", "within": None}}
    assert read(Amount, written(amount)) == amount
    assert read(Amount, {"amount": 3, "in": "EUR", "within": {"amount": 4, "in": "USD"}}) == amount


class Old(BaseModel):
    x: int

    @classmethod
    def model_validate_json(cls, json_data: str | bytes) -> "Old":  # type: ignore[override]
        return cls.model_validate(msgspec.json.decode(json_data))


def test_model_of_a_pydantic_that_cannot_read_by_name_is_read() -> None:
    assert read(Old, {"x": 1}) == Old(x=1)


@pytest.mark.parametrize("value", [{"x": "a"}, [], None, {}])
def test_value_that_does_not_fit_is_a_value_error_of_one_line(value: object) -> None:
    with pytest.raises(ValueError, match=r"^not a valid Point: .+$"):
        read(Point, value)


@pytest.mark.parametrize("kind", [int, dict, list[int], None, Point(x=1), "Point"])
def test_type_that_is_no_model_is_not_taken_for_one(kind: object) -> None:
    assert is_model(Point)
    assert not is_model(kind)


def test_client_and_worker_do_not_import_pydantic() -> None:
    program = "import sys, wakeq.client.aio, wakeq.worker; print('pydantic' in sys.modules)"

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert ran.stdout == "False\n"
