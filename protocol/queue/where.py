"""Where: conditions by which an operator picks messages.  Pure.

    "priority<5", "header.tenant=acme", "error~timeout", "text~anywhere"  -->  Condition  -->  does this message fit?

A condition is a field, a comparison and a value; all conditions of a selection must hold.  What is not understood is a
BadField that says what is: a selection is never wider than it was meant to be.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from wakeq.protocol.errors import BadField
from wakeq.protocol.queue.dead_letters import ERROR, REASON
from wakeq.protocol.redrive import ORIGIN

NUMBERS = ("priority", "age", "deliveries", "failures", "size")
TEXTS = ("state", "uid", "error", "body", "origin", "reason", "text")
HEADER = "header."
_CONDITION = re.compile(r"(header\.[^=!<>~]+|[a-z]+)(!=|<=|>=|=|<|>|~)(.*)", re.DOTALL)
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "~": lambda found, wanted: wanted in found,
}


class Candidate(NamedTuple):
    """What conditions can see of a message."""

    uid: str
    state: str
    body: bytes
    headers: Mapping[str, str]
    priority: int
    age_s: float
    deliveries: int
    failures: int
    error: str

    def value_of(self, field: str) -> float | str:
        """Return a field's value; a header that is missing is empty."""
        match field:
            case "age":
                return self.age_s
            case "size":
                return len(self.body)
            case "body":
                return self.body.decode(errors="replace")
            case "error":  # a dead letter has not failed itself, but brings along why it is one
                return self.error or self.headers.get(ERROR, "")
            case "origin":
                return self.headers.get(ORIGIN, "")
            case "reason":
                return self.headers.get(REASON, "")
            case _ if field.startswith(HEADER):
                return self.headers.get(field.removeprefix(HEADER), "")
        value: float | str = getattr(self, field)
        return value

    def mentions(self, text: str) -> bool:
        """Whether a text is where a person would search: in uid, error, headers or body, whatever its case.

        Bodies are searched as bytes: to decode one that is no text costs 50 ms for each MiB.
        """
        small = text.lower()
        if any(small in part.lower() for part in (self.uid, self.error, *chain.from_iterable(self.headers.items()))):
            return True
        if small.isascii():
            return small.encode() in self.body.lower()
        return any(form.encode() in self.body for form in (text, small, text.upper(), text.title()))


class Condition(NamedTuple):
    """One condition, checked."""

    field: str
    compare: str
    value: float | str

    def holds(self, candidate: Candidate) -> bool:
        if self.field == "text":
            assert isinstance(self.value, str), "checked"
            return candidate.mentions(self.value) is (self.compare != "!=")
        if self.field == "body" and self.compare == "~":
            return str(self.value).encode() in candidate.body
        return _COMPARE[self.compare](candidate.value_of(self.field), self.value)


def parse_condition(text: str) -> Condition:
    """Read `FIELD OP VALUE`, or raise BadField."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise BadField(f"{text!r} is not a condition; write one like priority<5, error~timeout or header.tenant=acme")
    field, compare, value = match.groups()
    if field in NUMBERS:
        return Condition(field, compare, _number(text, compare, value))
    if field not in TEXTS and not field.startswith(HEADER):
        raise BadField(
            f"{text!r}: there is no field {field}; known are {', '.join((*NUMBERS, *TEXTS))} and header.NAME"
        )
    if field == "text" and compare == "=":
        raise BadField(f"{text!r}: text is searched for with ~ (contains), or != (does not contain)")
    if compare not in ("=", "!=", "~"):
        raise BadField(f"{text!r}: {field} is a text, so only =, != and ~ (contains) compare it")
    return Condition(field, compare, value)


def _number(text: str, compare: str, value: str) -> float:
    if compare == "~":
        raise BadField(f"{text!r}: ~ (contains) is for texts")
    try:
        return float(value)
    except ValueError:
        raise BadField(f"{text!r}: {value!r} is not a number") from None


def fits(candidate: Candidate, conditions: Sequence[Condition]) -> bool:
    """Whether all conditions hold."""
    return all(condition.holds(candidate) for condition in conditions)
