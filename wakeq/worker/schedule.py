"""Schedules: the moments of a schedule (Cron, Every), and the publishes at these moments (Timetable).

    "30 6 * * mon-fri", "Europe/Berlin"  -->  after(moment) is the next half past six on a working day
    schedules, the clock  -->  Timetable  -->  publish, with an id made of the call and its moment

Every instance of a worker has the same timetable and publishes the same ids, and the broker stores each id once. So
each moment has one message, however many instances run, and none is missed as long as one of them runs. An instance
that starts catches up on the last moment if it is less than ten minutes ago; a moment that could not be published for
longer is skipped.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from hashlib import blake2b
from typing import Any, ClassVar
from zoneinfo import ZoneInfo, available_timezones

from wakeq.client.aio import AsyncClient
from wakeq.client.arguments.spans import seconds
from wakeq.client.message import canonical_json_of
from wakeq.client.requests import PublishOptions, publish
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.wire.worker import codec as wire
from wakeq.worker.task import Publisher

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

log = logging.getLogger("wakeq.worker")

# The clock is read this often, because it may be set.
CHECK_CLOCK_EVERY_S = 30.0
# The broker remembers ids for longer than this, so a publish in this time is stored once.
LATE_S_MAX = 600.0
# The pause after a refusal.
AGAIN_S = 5.0
# The broker hears of changed moments at most this often.
RESTATE_EVERY_S = 1.0
# This header of each message has its moment.
HEADER = "scheduled"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
    """Moments given by five sets of numbers, as in cron(5).

    A day matches if it is in both sets of days, or in either set if both are restricted. When the clocks go forward, a
    moment in the skipped time comes once, at the end of that time. When they go back, a moment in the repeated time
    comes once. A schedule for every hour ignores both changes.
    """

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


def read_moments(when: str | int | timedelta, zone: str | None = None) -> Cron | Every:
    """Read a number of seconds, or a cron text in a time zone."""
    if isinstance(when, timedelta) and not when % timedelta(seconds=1):
        when = when // timedelta(seconds=1)
    match when:
        case bool():
            pass
        case int() if zone is not None:
            raise ValueError(f"a zone ({zone!r}) has no meaning for a schedule in seconds; leave it out")
        case int():
            return Every(when)
        case str():
            return read_cron(when, "UTC" if zone is None else zone)
    raise TypeError(f"{when!r} is not a schedule; pass whole seconds, a timedelta, or text such as '30 6 * * mon-fri'")


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


@dataclass(frozen=True, slots=True)
class Schedule:
    """A call of a task, and its moments."""

    publisher: Publisher[Any]
    arguments: Mapping[str, Any]
    moments: Cron | Every

    def check(self) -> None:
        """Raise TypeError or ValueError if this can never be published, before its first moment comes."""
        task, settings = self.publisher.task, self.publisher.settings
        body = task.body_of((), self.arguments)
        if settings.id is not None:
            raise ValueError(f"{task.queue}: a schedule makes an id for each moment; leave out options(id=...)")
        if settings.at is not None:
            raise ValueError(f"{task.queue}: a schedule has moments of its own; leave out options(at=...)")
        if settings.headers is not None and not isinstance(settings.headers, Mapping):
            raise TypeError(f"{task.queue}: headers must be a mapping of names to values, not {settings.headers!r}")
        options = PublishOptions(
            settings.delay,
            task.timeout,
            settings.expires,
            settings.priority,
            {**(settings.headers or {}), HEADER: _text_of(EPOCH)},
            None,
        )
        try:
            self.id_at(EPOCH)
            (read,) = wire.decode(wire.encode_commands([publish(task.queue, body, options).command]))
        except (WakeqError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{task.queue}: this schedule cannot be published: {error}") from error
        # The broker reads the command with the same code.
        if isinstance(read, wire.Bad):
            raise ValueError(f"{task.queue}: this schedule cannot be published: {read.error}")

    def facts(self) -> wire.Recurring:
        """Return what a worker says of this schedule when it says who it is."""
        queue, moments = self.publisher.task.queue, self.moments
        following = moments.after(datetime.now(UTC))
        if isinstance(moments, Every):
            return wire.Recurring(queue, every=moments.span_s, next=following)
        zone = str(moments.zone)
        return wire.Recurring(queue, cron=moments.text.removesuffix(f" {zone}"), zone=zone, next=following)

    def id_at(self, moment: datetime) -> str:
        """Return the id of this call at this moment; it is the same in all instances."""
        settings = self.publisher.settings
        # A span has one id, whether it is given as 60, 60.0 or a timedelta.
        delay, expires = seconds("delay", settings.delay), seconds("expires", settings.expires)
        options = (delay, expires, settings.priority, settings.headers or {})
        call = canonical_json_of((self.arguments, options))
        return f"{_text_of(moment)} {blake2b(call, digest_size=8).hexdigest()}"


class Timetable:
    """The schedules of one worker."""

    def __init__(self, schedules: Sequence[Schedule], now_s: Callable[[], float] = time.time) -> None:
        self._schedules = schedules
        self._now_s = now_s
        # A next moment has changed since the broker heard of it.
        self._has_moved = asyncio.Event()

    async def publish_due(self, client: AsyncClient) -> None:
        """Publish all schedules at their moments until this is cancelled."""
        publishing = [self._publish_moments(schedule, client) for schedule in self._schedules]
        await asyncio.gather(self._restate(client), *publishing)

    async def _restate(self, client: AsyncClient) -> None:
        """Tell the broker the next moments whenever they have changed: operators see them."""
        while True:
            await self._has_moved.wait()
            self._has_moved.clear()
            # At the next connection the client says it anyway.
            with suppress(WakeqError):
                await client.introduce()
            await asyncio.sleep(RESTATE_EVERY_S)

    async def _publish_moments(self, schedule: Schedule, client: AsyncClient) -> None:
        due = self._last_of(schedule)
        while True:
            while (left_s := due.timestamp() - self._now_s()) > 0:
                await asyncio.sleep(min(left_s, CHECK_CLOCK_EVERY_S))
                # The clock may have been set back.
                due = min(due, schedule.moments.after(self._now()))
            self._has_moved.set()
            if -left_s <= LATE_S_MAX:
                await self._publish(schedule, due, client)
                # After `due` and not after now: moments that passed meanwhile are due, too.
                due = schedule.moments.after(due)
            else:
                skipped, due = due, self._first_of(schedule)
                log.warning(
                    "%s: the runs from %s until before %s are skipped: this worker could not publish them in time",
                    schedule.publisher.task.queue,
                    _text_of(skipped),
                    _text_of(due),
                )

    def _first_of(self, schedule: Schedule) -> datetime:
        """Return the first moment whose id the broker would still remember."""
        return schedule.moments.after(self._now() - timedelta(seconds=LATE_S_MAX))

    def _last_of(self, schedule: Schedule) -> datetime:
        """Return the last past moment whose id the broker would still remember; else the next moment."""
        now, moment = self._now(), self._first_of(schedule)
        while (following := schedule.moments.after(moment)) <= now:
            moment = following
        return moment

    async def _publish(self, schedule: Schedule, due: datetime, client: AsyncClient) -> None:
        """Publish one moment. Repeat until it is stored, or until it is so late that it might be stored twice."""
        queue, refusal = schedule.publisher.task.queue, ""
        while (left_s := due.timestamp() + LATE_S_MAX - self._now_s()) > 0:
            try:
                async with asyncio.timeout(left_s):
                    await schedule.publisher.publish_by(
                        client, schedule.arguments, id=schedule.id_at(due), more_headers={HEADER: _text_of(due)}
                    )
                return
            except TimeoutError:
                break
            except WakeqError as error:
                # Each refusal is logged once.
                if str(error) != refusal:
                    refusal = str(error)
                    log.error("%s: the run of %s was refused and is tried again: %s", queue, _text_of(due), error)
                await asyncio.sleep(AGAIN_S)
        log.error("%s: giving up the run of %s; it may or may not have been published", queue, _text_of(due))

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._now_s(), UTC)


def _text_of(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")
