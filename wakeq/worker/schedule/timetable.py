"""Timetable: publishes the calls of tasks that a worker makes at their moments.

    schedules, the clock  -->  Timetable  -->  publish, with an id that names the call and its moment

Every instance of a worker has the same timetable and publishes the same ids, and the broker stores each id once: each
moment has one message, however many instances there are, and none is missed as long as one of them runs.  One that
begins makes up for the last moment, if it was in the last ten minutes; what cannot be published for longer is left out.
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
from wakeq.client.core.encoding import canonical_json_of
from wakeq.client.core.requests import PublishOptions, publish
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.wire.worker import codec as wire
from wakeq.worker.schedule.cron import Cron, Every
from wakeq.worker.task import Publisher

log = logging.getLogger("wakeq.worker")

LOOK_EVERY_S = 30.0  # at the clock, which may be set
LATE_S_MAX = 600.0  # the broker remembers ids for longer: what is published until then is published once
AGAIN_S = 5.0  # after a refusal
HEADER = "scheduled"  # of each message: its moment
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A call of a task, and when."""

    publisher: Publisher[Any]
    arguments: Mapping[str, Any]
    moments: Cron | Every

    def check(self) -> None:
        """Raise TypeError or ValueError if it can never be published: where it is said, not at its first moment."""
        task, settings = self.publisher.task, self.publisher.settings
        body = task.body_of((), self.arguments)
        if settings.id is not None:
            raise ValueError(f"{task.queue}: each moment has an id of its own; leave options(id=...) out of a schedule")
        if settings.headers is not None and not isinstance(settings.headers, Mapping):
            raise TypeError(f"{task.queue}: headers are names with their values, and not {settings.headers!r}")
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
        if isinstance(read, wire.Bad):  # so the broker reads it
            raise ValueError(f"{task.queue}: this schedule cannot be published: {read.error}")

    def id_at(self, moment: datetime) -> str:
        """What the same call, with the same options, of any instance at this moment is called."""
        settings = self.publisher.settings
        options = (settings.delay, settings.expires, settings.priority, settings.headers or {})
        call = canonical_json_of((self.arguments, options))
        return f"{_text_of(moment)} {blake2b(call, digest_size=8).hexdigest()}"


class Timetable:
    """The schedules of one worker."""

    def __init__(self, schedules: Sequence[Schedule], now_s: Callable[[], float] = time.time) -> None:
        self._schedules = schedules
        self._now_s = now_s

    async def keep(self, client: AsyncClient) -> None:
        """Publish what is due, until this is cancelled."""
        await asyncio.gather(*(self._keep(schedule, client) for schedule in self._schedules))

    async def _keep(self, schedule: Schedule, client: AsyncClient) -> None:
        due = self._last_of(schedule)
        while True:
            while (left_s := due.timestamp() - self._now_s()) > 0:
                await asyncio.sleep(min(left_s, LOOK_EVERY_S))
                due = min(due, schedule.moments.after(self._now()))  # the clock may have been set back
            if -left_s <= LATE_S_MAX:
                await self._publish(schedule, due, client)
                due = schedule.moments.after(due)  # not of now: those that came meanwhile are due as well
            else:
                left_out, due = due, self._first_of(schedule)
                log.warning(
                    "%s: the runs from %s until before %s are left out: this worker could not publish them in time",
                    schedule.publisher.task.queue,
                    _text_of(left_out),
                    _text_of(due),
                )

    def _first_of(self, schedule: Schedule) -> datetime:
        """The first moment of which the broker still remembers whether it had its message."""
        return schedule.moments.after(self._now() - timedelta(seconds=LATE_S_MAX))

    def _last_of(self, schedule: Schedule) -> datetime:
        """The last moment that is over, if the broker still remembers whether it had its message; else the next one."""
        now, moment = self._now(), self._first_of(schedule)
        while (following := schedule.moments.after(moment)) <= now:
            moment = following
        return moment

    async def _publish(self, schedule: Schedule, due: datetime, client: AsyncClient) -> None:
        """Try until it is stored, or so late that it might be stored twice."""
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
                if str(error) != refusal:  # told once, however often it is tried
                    refusal = str(error)
                    log.error("%s: the run of %s is tried again, for it was refused: %s", queue, _text_of(due), error)
                await asyncio.sleep(AGAIN_S)
        log.error("%s: it is not known whether the run of %s was published; it is given up", queue, _text_of(due))

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._now_s(), UTC)


def _text_of(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")
