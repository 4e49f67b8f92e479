"""Timetable: publishes the scheduled tasks of a worker at their moments.

    schedules, the clock  -->  Timetable  -->  publish, with an id made of the call and its moment

Every instance of a worker has the same timetable and publishes the same ids, and the broker stores each id once. So
each moment has one message, however many instances run, and none is missed as long as one of them runs. An instance
that starts catches up on the last moment if it is less than ten minutes ago; a moment that could not be published for
longer is skipped.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

from wakeq.client.aio import AsyncClient
from wakeq.client.message import canonical_json_of
from wakeq.client.requests import PublishOptions, publish
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.wire.worker import codec as wire
from wakeq.worker.schedule.cron import Cron, Every
from wakeq.worker.task import Publisher

log = logging.getLogger("wakeq.worker")

# The clock is read this often, because it may be set.
CHECK_CLOCK_EVERY_S = 30.0
# The broker remembers ids for longer than this, so a publish in this time is stored once.
LATE_S_MAX = 600.0
# The pause after a refusal.
AGAIN_S = 5.0
# This header of each message has its moment.
HEADER = "scheduled"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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

    def id_at(self, moment: datetime) -> str:
        """Return the id of this call at this moment; it is the same in all instances."""
        settings = self.publisher.settings
        options = (settings.delay, settings.expires, settings.priority, settings.headers or {})
        call = canonical_json_of((self.arguments, options))
        return f"{_text_of(moment)} {blake2b(call, digest_size=8).hexdigest()}"


class Timetable:
    """The schedules of one worker."""

    def __init__(self, schedules: Sequence[Schedule], now_s: Callable[[], float] = time.time) -> None:
        self._schedules = schedules
        self._now_s = now_s

    async def publish_due(self, client: AsyncClient) -> None:
        """Publish all schedules at their moments until this is cancelled."""
        await asyncio.gather(*(self._publish_moments(schedule, client) for schedule in self._schedules))

    async def _publish_moments(self, schedule: Schedule, client: AsyncClient) -> None:
        due = self._last_of(schedule)
        while True:
            while (left_s := due.timestamp() - self._now_s()) > 0:
                await asyncio.sleep(min(left_s, CHECK_CLOCK_EVERY_S))
                # The clock may have been set back.
                due = min(due, schedule.moments.after(self._now()))
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
