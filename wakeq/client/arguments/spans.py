"""Spans: how long something lasts, and when it is due, as programs give them; in seconds, as the broker takes them.

    5, 1.5, timedelta(minutes=2)  -->  seconds  -->  5, 1.5, 120        a datetime  -->  seconds_until

A whole number of seconds stays a whole number, so that a broker that knows no fractions understands it. A finer
fraction than milliseconds is rounded up. BadField names a span that cannot be sent.
"""

import time
from datetime import datetime, timedelta
from typing import TypeAlias, overload

from wakeq.protocol.errors import BadField
from wakeq.protocol.seconds import ms_of

Span: TypeAlias = float | timedelta

MS_PER_S = 1000


@overload
def seconds(name: str, span: Span) -> float: ...


@overload
def seconds(name: str, span: Span | None) -> float | None: ...


def seconds(name: str, span: Span | None) -> float | None:
    """Return a span in seconds, with a fraction only if it has one. Its range is checked by the broker."""
    if span is None:
        return None
    # An IntEnum is sent as its number; a bool is a mistake.
    if isinstance(span, int) and not isinstance(span, bool):
        return int(span)
    if isinstance(span, timedelta):
        return seconds_of(-(-span // timedelta(milliseconds=1)))
    if isinstance(span, float) and float("-inf") < span < float("inf"):
        return seconds_of(ms_of(span))
    raise BadField(f"{name} is {span!r}; give a number of seconds, or a timedelta")


def seconds_until(moment: datetime) -> float:
    """Return the seconds from now until a moment; 0 if it is over."""
    if not isinstance(moment, datetime):
        raise BadField(f"at is {moment!r}; give a datetime with a time zone, or a delay")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise BadField(f"at is {moment!r}, which has no time zone; write datetime.now(UTC), or moment.astimezone()")
    return seconds_of(max(0, ms_of(moment.timestamp() - time.time())))


def delay_until(delay: Span, at: datetime | None) -> float:
    """Return a delay that is given as a span or as the moment of its end, in seconds."""
    if at is None:
        return seconds("delay", delay)
    if delay:
        raise BadField("give delay or at, not both: each says when the message is due")
    return seconds_until(at)


def seconds_of(ms: int) -> float:
    """Return milliseconds in seconds: a whole number if it is one."""
    return ms // MS_PER_S if ms % MS_PER_S == 0 else ms / MS_PER_S
