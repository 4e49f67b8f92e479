"""Models: pydantic's models as JSON, if the program uses pydantic; this package never imports it.

    a model  -->  written  -->  dicts and lists          JSON values, the type of a model  -->  read  -->  a model

    a value, and the value read from its JSON  -->  loss_in  -->  the first field of a model that is not the same

Known by the methods that every model has. A value that does not fit is a ValueError of one line.
"""

import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from inspect import signature
from typing import Any, Protocol

import msgspec

# Values of these types contain no others.
PLAIN = (str, bytes, int, float, type(None))
# So many types of models are remembered.
TYPES_MAX = 1000


class Model(Protocol):
    """A model of pydantic, for type checkers."""

    def model_dump_json(self) -> str: ...


def is_model(kind: Any) -> bool:
    """Return whether a type is a model of pydantic."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_validate_json")


def written(model: Any) -> Any:
    """Return a model as values that JSON knows, from which it can be read again."""
    return model.model_dump(mode="json", by_alias=True, round_trip=True)


def written_in_order(model: Any) -> Any:
    """Return the same as `written`, with the items of all sets sorted, so that it is the same in every process.

    Raise TypeError if pydantic cannot say which lists were sets.
    """
    return _in_order(written(model), model.model_dump(by_alias=True, round_trip=True))


def _in_order(value: Any, original: Any) -> Any:
    """Return a value for JSON with its lists sorted that are sets in the original."""
    match value, original:
        case list(), set() | frozenset():
            return _sorted(value)
        case list(), list() | tuple():
            return [_in_order(one, other) for one, other in zip(value, original, strict=True)]
        case dict(), dict():
            return {
                name: _in_order(one, other) for (name, one), other in zip(value.items(), original.values(), strict=True)
            }
        case _:
            return value


def _sorted(value: Any) -> Any:
    """Return a value with all of its lists sorted: which of those in a set were sets is not known."""
    match value:
        case list():
            return sorted(map(_sorted, value), key=msgspec.json.encode)
        case _:
            return value


def read(kind: Any, value: object) -> object:
    """Return the model for a JSON value."""
    try:
        return kind.model_validate_json(msgspec.json.encode(value), **_more_names(kind))
    except ValueError as error:
        found = error.errors() if hasattr(error, "errors") else []
        problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ") for one in found]
        raise ValueError(f"not a valid {kind.__name__}: {'; '.join(problems) or error}") from error


@lru_cache(TYPES_MAX)
def _more_names(kind: Any) -> dict[str, bool]:
    """Return the option that reads fields also by name, as a field with only a `validation_alias` is written.

    pydantic has it since 2.11.
    """
    return {"by_name": True} if "by_name" in signature(kind.model_validate_json).parameters else {}


def loss_in(given: object, again: object) -> tuple[str, str] | None:
    """Return the path of the first field of a model that is not as it was given, and why; None if all are.

    `again` is what JSON gave back. Values outside of models are not compared, because they may change: a tuple becomes
    a list. Nor are private attributes of a model, which are no part of its data.
    """
    if "pydantic" not in sys.modules:
        return None
    # Not recursive: JSON may be nested more deeply than calls. The last member: whether the value is in a model.
    waiting: list[tuple[str, Any, Any, bool]] = [("", given, again, False)]
    while waiting:
        path, one, other, is_in_model = waiting.pop()
        if is_model(type(one)):
            is_in_model = True
            try:
                other = other if is_model(type(other)) else read(type(one), other)
            except ValueError as error:
                return path, str(error)
            kind, kind_again = _kind_of(one), _kind_of(other)
            if kind is not kind_again:
                return path, _other_type(kind_again, kind)
        parts, parts_again = _parts(one), _parts(other)
        if is_in_model and (_differs(one, other) if parts is None else parts.keys() != (parts_again or {}).keys()):
            if other is not None and type(one) is not type(other):
                return path, _other_type(type(other), type(one))
            return path, (
                "a worker gets another value than this one: pydantic masks a SecretStr in JSON and leaves out fields "
                "with exclude=True; use a plain type that is not excluded"
            )
        if not parts or not parts_again:
            continue
        for name, part in reversed(parts.items()):
            if name in parts_again and (is_in_model or not isinstance(part, PLAIN)):
                waiting.append((f"{path}.{name}", part, parts_again[name], is_in_model))
    return None


def _other_type(found: type, given: type) -> str:
    return f"a worker gets a {found.__name__}, not a {given.__name__}; annotate it with the type that you pass"


def _kind_of(model: Any) -> type:
    """Return the type of a model; Box for a Box[int]."""
    kind: type = model.__pydantic_generic_metadata__["origin"] or type(model)
    return kind


def _parts(value: Any) -> dict[Any, Any] | None:
    """Return the values in a value by their names or places; None if it contains none."""
    kind = type(value)
    if isinstance(value, PLAIN):
        return None
    if is_model(kind):
        shown = {name: part for name, part in vars(value).items() if name in kind.model_fields}
        return shown | (value.model_extra or {})
    if isinstance(value, Mapping):
        return {str(name): part for name, part in value.items()}
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if is_dataclass(kind):
        return {field.name: getattr(value, field.name, None) for field in fields(kind)}
    return None


def _differs(one: object, other: object) -> bool:
    """Return whether two values differ, as far as their type can tell."""
    if type(one).__eq__ is object.__eq__:
        return type(one) is not type(other)
    try:
        return bool(one != other)
    # The comparison is code of the program; that of an array is no bool.
    except Exception:
        return type(one) is not type(other)
