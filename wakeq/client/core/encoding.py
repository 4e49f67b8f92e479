"""Encoding: what a program gives, as what the wire can carry: a value as JSON, a reason as text.

    value  -->  json_of  -->  bytes          a reason, perhaps an exception  -->  text_of_reason  -->  text

Subclasses of what JSON can say are written as what they are made of, for that is what reads them: a frozen or a
localised datetime is a datetime.  It must never raise anything but BadField, which names what cannot be written.
"""

from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from wakeq.protocol.errors import BadField
from wakeq.protocol.wire.worker.commands import ERROR_CHARS_MAX


def json_of(value: object) -> bytes:
    """The value as JSON.  Raise BadField if it cannot be written."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError as error:
        raise BadField(f"a text in it cannot be sent as UTF-8 ({error}); send bytes instead") from None
    except RecursionError:
        raise BadField("it is nested too deeply for JSON; does it hold itself?") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise BadField(f"it cannot be written as JSON ({error})") from None


def same_json_of(value: object) -> bytes:
    """The value as JSON that is the same in every process: mappings and sets in order.

    Raise BadField for a set that has none.
    """
    try:
        return _ENCODER.encode(msgspec.to_builtins(value, enc_hook=_written_as, order="deterministic", str_keys=True))
    except (TypeError, RecursionError) as error:
        raise BadField(f"it has no order that is the same everywhere ({error}); give a list, not a set") from None


def text_of_reason(what: object) -> str:
    """Why something failed, as text that can be sent: half characters are spelt out, what is too long is cut."""
    kind = type(what).__name__
    try:
        said = str(what)
    except Exception as error:  # it is the program's code that speaks here
        said = f"(what it says cannot be had: {type(error).__name__})"
    text = f"{kind}: {said}" if isinstance(what, BaseException) else said
    return text[:ERROR_CHARS_MAX].encode("utf-8", "backslashreplace").decode()[:ERROR_CHARS_MAX]


def plain_text(text: str) -> str:
    """The characters of a text that may be of a subclass of str."""
    return str.__str__(text)


def _written_as(value: Any) -> Any:
    """What stands in JSON for a value of a type that msgspec does not know."""
    match value:
        case str():
            return plain_text(value)
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case bytes():
            return bytes(memoryview(value))
        case date() | time():  # a datetime is a date too
            return value.isoformat()
        case timedelta():
            return timedelta(value.days, value.seconds, value.microseconds)
        case Decimal():
            return str(value)
        case Mapping():
            return dict(value)
        case _:
            kind = type(value)
            raise BadField(
                f"{kind.__module__}.{kind.__qualname__} cannot be written as JSON, or not as a key of it; "
                "give what it is made of: text, numbers, lists and dicts"
            )


_ENCODER = msgspec.json.Encoder(enc_hook=_written_as)
