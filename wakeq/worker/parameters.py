"""Parameters: the parameters of a handler as the fields of a JSON object, which any language can write and read.

    send(to="a@b.c")  -->  {"to": "a@b.c"}  -->  arguments of the annotated types

The names and types of the parameters are the contract between publisher and worker. A body with a field that is
missing, unknown or of another type is an InvalidBody, and a retry would not help.
"""

import inspect
import re
import typing
from collections.abc import Callable, Container, Mapping
from functools import cached_property
from typing import Any, cast

import msgspec

from wakeq.client.arguments.models import is_model, loss_in
from wakeq.client.arguments.models import read as read_model
from wakeq.client.message import json_of
from wakeq.protocol.errors import BadField, WakeqError

REFUSED_KINDS: dict[Any, str] = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional only",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments",
    inspect.Parameter.VAR_KEYWORD: "takes arguments of any name",
}


# What a decoder says, and about which value; types are quoted, by their names in JSON.
COMPLAINT = re.compile(r"(.*) - at `\$\.(.+)`", re.DOTALL)
QUOTED, WORD = re.compile(r"`([^`]*)`"), re.compile(r"\w+")
PYTHON_NAMES = {"null": "None", "array": "list", "object": "dict"}


class BadHandler(WakeqError, TypeError):
    """A function that cannot be a handler."""

    code = "BAD_HANDLER"
    exit_status = 2


class InvalidBody(WakeqError):
    """A body that does not fit the parameters of the handler."""

    code = "MISFIT"

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(text)
        # Which parameter does not fit, and why.
        self.problem = problem

    def __reduce__(self) -> tuple[Any, ...]:
        return InvalidBody, (str(self), self.problem)


class Parameters:
    """The parameters of one handler. Types are resolved on first use, because names may be defined later."""

    def __init__(self, handler: Callable[..., object], filled: Container[str] = ()) -> None:
        """`filled` are the names of the parameters that the worker fills; a message has no values for them."""
        self._handler = handler
        whole = inspect.signature(handler)
        self._signature = whole.replace(
            parameters=[parameter for name, parameter in whole.parameters.items() if name not in filled]
        )
        if is_method(handler, list(self._signature.parameters)):
            raise BadHandler(
                f"{handler.__qualname__} is a method, and a message has no object to call it on; define a function at "
                "the top of a module, or a staticmethod"
            )
        for parameter in self._signature.parameters.values():
            if problem := REFUSED_KINDS.get(parameter.kind):
                raise BadHandler(
                    f"{handler.__qualname__}: the parameter {parameter.name!r} {problem}; a message passes arguments "
                    "by name, so give each parameter a name, or take one parameter `message: Message`"
                )

    @cached_property
    def types(self) -> dict[str, Any]:
        """The annotation of each parameter; Any if there is none."""
        try:
            hints = typing.get_type_hints(self._handler, include_extras=True)
        except NameError as error:
            raise BadHandler(
                f"{self._handler.__qualname__}: an annotation uses a name that is not defined ({error}); "
                "import it outside of `if TYPE_CHECKING`"
            ) from error
        return {name: hints.get(name, Any) for name in self._signature.parameters}

    def check(self) -> None:
        """Raise BadHandler if no body could ever be read."""
        _ = self._decoder
        for name, kind in self.types.items():
            is_custom = isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)
            if is_custom and not _real_date(kind) and not is_model(kind):
                raise BadHandler(
                    f"{self._handler.__qualname__}: parameter {name}: {kind!r} is not JSON-serializable; "
                    "take a dataclass, a msgspec.Struct, a pydantic model or plain values"
                )

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Return the body for these arguments. Raise TypeError if the handler could not be called with them."""
        try:
            arguments = self._signature.bind(*args, **kwargs).arguments
        # The error of `bind` does not name the handler.
        except TypeError as error:
            raise TypeError(f"{self._handler.__qualname__}: {error}") from None
        try:
            body = json_of(arguments)
        except BadField as error:
            # Together they may be nested too deeply although each of them is not.
            wrong = (f"parameter {name}" for name, value in arguments.items() if not _is_writable(value))
            raise TypeError(f"{self._handler.__qualname__}: {next(wrong, 'the arguments')}: {error}") from None
        try:
            # A body that the worker would refuse is refused here, where the program can be corrected.
            again = self._read(body)
        except InvalidBody as error:
            raise TypeError(f"{self._handler.__qualname__}: {error.problem}") from None
        for name, value in arguments.items():
            if loss := loss_in(value, getattr(again, name)):
                path, problem = loss
                raise TypeError(f"{self._handler.__qualname__}: parameter {name}{path}: {problem}")
        return body

    def decode(self, body: bytes) -> dict[str, Any]:
        """Return the arguments in a body. Raise InvalidBody if it does not fit."""
        fields = msgspec.structs.asdict(self._read(body))
        if self._has_defaults:
            return {name: value for name, value in fields.items() if value is not msgspec.UNSET}
        return fields

    def _read(self, body: bytes) -> msgspec.Struct:
        """Return the body in the types of the parameters. Raise InvalidBody if it does not fit."""
        try:
            return cast(msgspec.Struct, self._decoder.decode(body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidBody(
                f"the body does not fit {self._handler.__qualname__}{self._readable_signature()}: {error}",
                _problem(str(error)),
            ) from None

    def _readable_signature(self) -> inspect.Signature:
        """Return the signature with the types themselves; annotations may be strings."""
        parameters = self._signature.parameters.values()
        typed = [parameter.replace(annotation=self.types[parameter.name]) for parameter in parameters]
        return inspect.Signature(typed)

    @cached_property
    def _has_defaults(self) -> bool:
        return any(parameter.default is not parameter.empty for parameter in self._signature.parameters.values())

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for name, kind in self.types.items():
            if self._signature.parameters[name].default is inspect.Parameter.empty:
                fields.append((name, kind))
            # The handler supplies its default itself.
            else:
                fields.append((name, typing.Union[kind, msgspec.UnsetType], msgspec.UNSET))  # noqa: UP007 - Any has no |
        try:
            body = msgspec.defstruct("Body", fields, kw_only=True, forbid_unknown_fields=True)
            return msgspec.json.Decoder(body, dec_hook=_read_as)
        except TypeError as error:
            raise BadHandler(
                f"{self._handler.__qualname__}: its parameters cannot be read from JSON ({error})"
            ) from error


def _is_writable(value: object) -> bool:
    try:
        json_of(value)
    except BadField:
        return False
    return True


def _problem(complaint: str) -> str:
    """Return what a decoder complains about in the words of the caller: the parameter, then what is wrong with it."""
    found = COMPLAINT.fullmatch(complaint)
    if found is None:
        return complaint
    words, path = found.groups()
    words = QUOTED.sub(lambda quoted: WORD.sub(lambda word: PYTHON_NAMES.get(word[0], word[0]), quoted[1]), words)
    return f"parameter {path}: {words[:1].lower()}{words[1:]}"


def _read_as(kind: Any, value: object) -> object:
    """Read what msgspec does not know: a pydantic model, or a date whose type is that of a frozen clock.

    Annotations that are evaluated under such a clock refer to its types.
    """
    if is_model(kind):
        return read_model(kind, value)
    real = _real_date(kind)
    if real is None:
        # To msgspec this is a body that does not fit.
        raise TypeError(f"{kind!r} is not JSON-serializable")
    return msgspec.convert(value, real)


def _real_date(kind: Any) -> type | None:
    """Return the date or datetime that a type is derived from.

    The base is found by its module, because a frozen clock replaces the names in `datetime`.
    """
    # A generic or annotated type has no bases and is no date.
    bases: tuple[type, ...] = getattr(kind, "__mro__", ())
    return next((base for base in bases if base.__module__ == "datetime"), None)


def name_of(handler: Callable[..., object]) -> str:
    """Return the name of a handler; a callable object may have none."""
    return getattr(handler, "__qualname__", None) or repr(handler)


def is_method(handler: Callable[..., object], names: list[str]) -> bool:
    """Return whether a function was defined in a class, to be called on an instance or on the class."""
    home = getattr(handler, "__qualname__", "").rpartition(".")[0]
    return bool(home) and not home.endswith("<locals>") and names[:1] in (["self"], ["cls"])
