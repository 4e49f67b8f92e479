"""Parameters: the parameters of a handler as the fields of a JSON object, which any language can write and read.

    send(to="a@b.c")  -->  {"to": "a@b.c"}  -->  arguments of the annotated types

The names and the types of the parameters are the contract between publisher and worker: a body with a field that
is missing, unknown or of another type is a Misfit, and trying it again would be of no use.
"""

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, cast

import msgspec

from wakeq.client.core.encoding import json_of
from wakeq.protocol.errors import BadField, WakeqError

REFUSED_KINDS: dict[Any, str] = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional only",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments",
    inspect.Parameter.VAR_KEYWORD: "takes arguments of any name",
}


class BadHandler(WakeqError, TypeError):
    """A function that cannot be a handler."""

    code = "BAD_HANDLER"
    exit_status = 2


class Misfit(WakeqError):
    """A body that is not what the handler takes."""

    code = "MISFIT"


class Parameters:
    """What one handler takes.  Types are resolved when they are first needed, so that names may be defined later."""

    def __init__(self, handler: Callable[..., object]) -> None:
        self._handler = handler
        self._signature = inspect.signature(handler)
        if is_method(handler, list(self._signature.parameters)):
            raise BadHandler(
                f"{handler.__qualname__} is a method, and a message brings no object to call it on; make it a function "
                "at the top of a module, or a staticmethod"
            )
        for parameter in self._signature.parameters.values():
            if why := REFUSED_KINDS.get(parameter.kind):
                raise BadHandler(
                    f"{handler.__qualname__}: the parameter {parameter.name!r} {why}; name each parameter, for a "
                    "message carries them by name, or take one parameter `message: Message`"
                )

    @cached_property
    def types(self) -> dict[str, Any]:
        """The annotation of each parameter; Any where there is none."""
        try:
            hints = typing.get_type_hints(self._handler, include_extras=True)
        except NameError as error:
            raise BadHandler(
                f"{self._handler.__qualname__}: its annotations name something that is not there ({error}); "
                "import it outside of `if TYPE_CHECKING`"
            ) from error
        return {name: hints.get(name, Any) for name in self._signature.parameters}

    def check(self) -> None:
        """Raise BadHandler if a body could never be read."""
        _ = self._decoder
        for name, kind in self.types.items():
            is_custom = isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)
            if is_custom and not _real_date(kind):
                raise BadHandler(
                    f"{self._handler.__qualname__}: {name} is a {kind!r}, which JSON cannot carry; "
                    "take what it is made of (a dataclass, a msgspec.Struct or an id)"
                )

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The body for these arguments.  Raise TypeError if the handler could not be called with them."""
        try:
            arguments = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:  # it does not say of what
            raise TypeError(f"{self._handler.__qualname__}: {error}") from None
        try:
            body = json_of(arguments)
        except BadField as error:
            raise TypeError(f"{self._handler.__qualname__}: the arguments cannot be a message: {error}") from error
        try:
            self._read(body)  # what the worker would refuse is refused here, where it can be mended
        except Misfit as error:
            raise TypeError(f"{self._handler.__qualname__}: the arguments cannot be a message: {error}") from error
        return body

    def decode(self, body: bytes) -> dict[str, Any]:
        """The arguments that a body stands for.  Raise Misfit if it does not fit."""
        fields = msgspec.structs.asdict(self._read(body))
        if self._has_defaults:
            return {name: value for name, value in fields.items() if value is not msgspec.UNSET}
        return fields

    def _read(self, body: bytes) -> msgspec.Struct:
        """The body in the types of the parameters.  Raise Misfit if it does not fit."""
        try:
            return cast(msgspec.Struct, self._decoder.decode(body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Misfit(f"the body does not fit {self._handler.__qualname__}{self._shown()}: {error}") from None

    def _shown(self) -> inspect.Signature:
        """What it takes, for people: with the types themselves, for annotations may be text."""
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
            else:  # the default stays the handler's own
                fields.append((name, typing.Union[kind, msgspec.UnsetType], msgspec.UNSET))  # noqa: UP007 - Any has no |
        try:
            body = msgspec.defstruct("Body", fields, kw_only=True, forbid_unknown_fields=True)
            return msgspec.json.Decoder(body, dec_hook=_date_of)
        except TypeError as error:
            raise BadHandler(
                f"{self._handler.__qualname__}: its parameters cannot be read from JSON ({error})"
            ) from error


def _date_of(kind: Any, said: object) -> object:
    """Read a date of a kind that only a frozen clock has: annotations that are evaluated under it name such kinds."""
    real = _real_date(kind)
    if real is None:
        raise TypeError(f"JSON cannot carry {kind!r}")  # to msgspec that is a body that does not fit
    return msgspec.convert(said, real)


def _real_date(kind: Any) -> type | None:
    """The date or datetime that a kind is derived from.  By the module: under a frozen clock its names are others."""
    bases: tuple[type, ...] = getattr(kind, "__mro__", ())  # a generic or annotated kind has none, and is no date
    return next((base for base in bases if base.__module__ == "datetime"), None)


def name_of(handler: Callable[..., object]) -> str:
    """The name of a handler, for people; a callable object may have none."""
    return getattr(handler, "__qualname__", None) or repr(handler)


def is_method(handler: Callable[..., object], names: list[str]) -> bool:
    """Whether this was defined in the body of a class, to be called on an instance or the class."""
    home = getattr(handler, "__qualname__", "").rpartition(".")[0]
    return bool(home) and not home.endswith("<locals>") and names[:1] in (["self"], ["cls"])
