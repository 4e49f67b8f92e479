"""Cron: moments given by five fields, as in cron(5); and Every, moments at a fixed interval in seconds.

    "30 6 * * mon-fri", "Europe/Berlin"  -->  after(moment) is the next half past six on a working day

Both are pure: a moment comes in, a later one goes out. When the clocks go forward, a moment in the skipped time comes
once, at the end of that time. When they go back, a moment in the repeated time comes once. A schedule for every hour
ignores both changes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import ClassVar
from zoneinfo import ZoneInfo, available_timezones

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("day of the week", 0, 7))
NAMES = {
    "month": ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    "day of the week": ("sun", "mon", "tue", "wed", "thu", "fri", "sat"),
}
SUNDAY_TOO = 7
# 365 days.
SPAN_S_MAX = 31_536_000
HOURS = 24
# Clocks go back by at most this.
SHIFT_MAX = timedelta(hours=3)
# The next 29th of February is at most so far away.
DAYS_MAX = 8 * 366


@dataclass(frozen=True, slots=True)
class Every:
    """Moments at a fixed interval, counted from 1970, so that they are the same on every machine."""

    span_s: int
    zone: ClassVar[tzinfo] = UTC

    def __str__(self) -> str:
        return f"every {self.span_s} s"

    def __post_init__(self) -> None:
        if not 1 <= self.span_s <= SPAN_S_MAX:
            raise ValueError(f"every {self.span_s} s is not a schedule; give 1 to {SPAN_S_MAX} seconds")

    def after(self, moment: datetime) -> datetime:
        """Return the next moment after this one."""
        return datetime.fromtimestamp((moment.timestamp() // self.span_s + 1) * self.span_s, UTC)


@dataclass(frozen=True, slots=True)
class Cron:
    """Five sets of numbers. A day matches if it is in both sets of days, or in either set if both are restricted."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    # 0 is Sunday.
    weekdays: frozenset[int]
    either_day: bool
    zone: tzinfo
    # As it was given.
    text: str = field(compare=False)

    def __str__(self) -> str:
        return self.text

    def after(self, moment: datetime) -> datetime:
        """Return the next moment after this one. Raise ValueError if there is none."""
        begin = moment.astimezone(self.zone).replace(tzinfo=None) - SHIFT_MAX
        found: tuple[datetime, datetime] | None = None
        for local in self._local_times_from(begin):
            if found is not None and local > found[1] + SHIFT_MAX:
                break
            for candidate in self._moments_of(local):
                if candidate > moment and (found is None or candidate < found[0]):
                    found = candidate, local
        if found is None:
            raise ValueError("there is no such day")
        return found[0]

    def _local_times_from(self, begin: datetime) -> Iterator[datetime]:
        """Yield the local times that match the fields, in order."""
        for days in range(DAYS_MAX):
            day = begin.date() + timedelta(days=days)
            if self._matches(day):
                for hour in sorted(self.hours):
                    for minute in sorted(self.minutes):
                        local = datetime(day.year, day.month, day.day, hour, minute)
                        if local >= begin:
                            yield local

    def _matches(self, day: date) -> bool:
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (in_month or in_week if self.either_day else in_month and in_week)

    def _moments_of(self, local: datetime) -> list[datetime]:
        """Return the moments at which clocks show a local time: one, two, or none."""
        first, second = (local.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        every_hour = len(self.hours) == HOURS
        if first == second:
            return [first]
        if first < second:
            return [first, second] if every_hour else [first]
        return [] if every_hour else [self._change_between(second, first)]

    def _change_between(self, before: datetime, after: datetime) -> datetime:
        """Return the second at which the clocks go forward."""
        least, most = int(before.timestamp()), int(after.timestamp())
        offset = after.astimezone(self.zone).utcoffset()
        while most - least > 1:
            middle = (least + most) // 2
            if datetime.fromtimestamp(middle, self.zone).utcoffset() == offset:
                most = middle
            else:
                least = middle
        return datetime.fromtimestamp(most, UTC)


def read_moments(when: str | int, zone: str | None = None) -> Cron | Every:
    """Read a number of seconds, or a cron text in a time zone."""
    match when:
        case bool():
            pass
        case int() if zone is not None:
            raise ValueError(f"a zone ({zone!r}) has no meaning for a schedule in seconds; leave it out")
        case int():
            return Every(when)
        case str():
            return read_cron(when, "UTC" if zone is None else zone)
    raise TypeError(f"{when!r} is not a schedule; pass whole seconds, or text such as '30 6 * * mon-fri'")


def read_cron(text: str, zone: str = "UTC") -> Cron:
    """Read five fields, or a nickname such as @daily. Raise a ValueError that names the wrong field."""
    fields = NICKNAMES.get(text, text).lower().split()
    if len(fields) != len(FIELDS):
        raise ValueError(
            f"{text!r} is not a schedule; write minute, hour, day of the month, month and day of the week, as in "
            f"'30 6 * * mon-fri', or {', '.join(NICKNAMES)}"
        )
    minutes, hours, days, months, weekdays = (
        _read_field(field, *kind) for field, kind in zip(fields, FIELDS, strict=True)
    )
    found = Cron(
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=frozenset(day % SUNDAY_TOO for day in weekdays),
        either_day=not (fields[2].startswith("*") or fields[4].startswith("*")),
        zone=_read_zone(zone),
        text=f"{text} {zone}",
    )
    try:
        found.after(datetime(2000, 1, 1, tzinfo=UTC))
    except ValueError as error:
        raise ValueError(f"{text!r} never happens: {error}") from error
    return found


def _read_zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, TypeError, ValueError, OSError) as error:
        if not available_timezones():
            raise ValueError(
                f"{name!r} is not known because this machine has no time zones; install tzdata (pip install tzdata)"
            ) from error
        raise ValueError(
            f"{name!r} is not a time zone known to this machine; write one like 'Europe/Berlin'"
        ) from error


def _read_field(field: str, kind: str, least: int, most: int) -> frozenset[int]:
    """Return the numbers of `*`, `5`, `1-5`, `*/15`, `8-18/2`, or several of these separated by commas."""
    numbers: set[int] = set()
    for part in field.split(","):
        span, slash, step_text = part.partition("/")
        first_text, dash, last_text = span.partition("-")
        try:
            first = least if span == "*" else _number(first_text, kind, least)
            last = _number(last_text, kind, least) if dash else most if span == "*" or slash else first
            # A Sunday at the end of a range is day 7.
            if dash and kind in NAMES and last == 0 < first:
                last = SUNDAY_TOO
            step = _digits(step_text) if slash else 1
        except ValueError:
            first, last, step = most + 1, most, 0
        if not (least <= first <= last <= most and step >= 1):
            raise ValueError(f"{part!r} is not a valid {kind} ({least} to {most}); write *, 5, 1-5, */2, or 1,3")
        numbers.update(range(first, last + 1, step))
    return frozenset(numbers)


def _number(text: str, kind: str, least: int) -> int:
    names = NAMES.get(kind, ())
    return names.index(text) + least if text in names else _digits(text)


def _digits(text: str) -> int:
    """Return the number; only digits are allowed, unlike in int()."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)
