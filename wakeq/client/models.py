"""Models: pydantic's models as JSON, if the program uses pydantic; this package never imports it.

    a model  -->  written  -->  dicts and lists          JSON values, the type of a model  -->  read  -->  a model

Known by the methods that every model has. A value that does not fit is a ValueError of one line.
"""

from typing import Any, Protocol

import msgspec


class Model(Protocol):
    """A model of pydantic, for type checkers."""

    def model_dump_json(self) -> str: ...


def is_model(kind: Any) -> bool:
    """Return whether a type is a model of pydantic."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_validate_json")


def written(model: Any) -> Any:
    """Return a model as values that JSON knows, from which it can be read again."""
    return model.model_dump(mode="json", by_alias=True, round_trip=True)


def read(kind: Any, value: object) -> object:
    """Return the model for a JSON value."""
    try:
        return kind.model_validate_json(msgspec.json.encode(value))
    except ValueError as error:
        found = error.errors() if hasattr(error, "errors") else []
        problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ") for one in found]
        raise ValueError(f"not a valid {kind.__name__}: {'; '.join(problems) or error}") from error
