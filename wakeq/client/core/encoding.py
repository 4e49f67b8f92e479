"""Encoding: values of a program in the form that the wire carries: a value as JSON, a reason as text.

    value  -->  json_of  -->  bytes          a reason, perhaps an exception  -->  text_of_reason  -->  text

A subclass of a type that JSON knows is written as that type, because readers expect that type: a frozen or a localised
datetime becomes a datetime. No error but BadField leaves this file; it names the value that cannot be written.
"""

from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from wakeq.protocol.errors import BadField
from wakeq.protocol.wire.worker.commands import ERROR_CHARS_MAX


def json_of(value: object) -> bytes:
    """Return the value as JSON, or raise BadField."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError as error:
        raise BadField(f"a text in the value cannot be sent as UTF-8 ({error}); send bytes instead") from None
    except RecursionError:
        raise BadField("the value is nested too deeply for JSON; does it contain itself?") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise BadField(f"the value cannot be written as JSON ({error})") from None


def canonical_json_of(value: object) -> bytes:
    """Return JSON that is the same in every process: mappings and sets are sorted.

    Raise BadField for a set that cannot be sorted.
    """
    try:
        return _ENCODER.encode(msgspec.to_builtins(value, enc_hook=_written_as, order="deterministic", str_keys=True))
    except (TypeError, RecursionError) as error:
        raise BadField(f"the value has no order that is the same everywhere ({error}); use a list, not a set") from None


def text_of_reason(reason: object) -> str:
    """Return why something failed as text that can be sent: lone surrogates are escaped, and long text is cut."""
    kind = type(reason).__name__
    try:
        text = str(reason)
    except Exception as error:
        # `__str__` is code of the program and may fail, too.
        text = f"(its text is not available: {type(error).__name__})"
    text = f"{kind}: {text}" if isinstance(reason, BaseException) else text
    return text[:ERROR_CHARS_MAX].encode("utf-8", "backslashreplace").decode()[:ERROR_CHARS_MAX]


def plain_text(text: str) -> str:
    """Return a plain str for an instance of str or a subclass."""
    return str.__str__(text)


def _written_as(value: Any) -> Any:
    """Return the value that stands in JSON for a value of a type that msgspec does not know."""
    match value:
        case str():
            return plain_text(value)
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case bytes():
            return bytes(memoryview(value))
        # A datetime is a date, too.
        case date() | time():
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
                f"{kind.__module__}.{kind.__qualname__} is not JSON-serializable, or not as a key; "
                "pass text, numbers, lists and dicts instead"
            )


_ENCODER = msgspec.json.Encoder(enc_hook=_written_as)
