"""The forecast: how many workers each queue needs in each hour of the day, from a lake.

    lake --> arrivals and service time per queue and hour --> workers, so that a percentage waits no longer than a span

The model is M/M/c (Erlang C): arrivals at random, service times that vary as much as their mean. It is a rule of thumb
for planning: bursts of work need more workers, and work of constant length fewer.
"""

import math
from dataclasses import dataclass

from wakeq.pipeline.report.engine import Engine
from wakeq.pipeline.report.events import Events
from wakeq.pipeline.report.queries import Query

HOUR_S = 3600
HOUR_MS = 1000 * HOUR_S
DAY_MS = 24 * HOUR_MS
WORKERS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class HourForecast:
    """One queue in one hour of the day (UTC)."""

    queue: str
    hour: int
    days: int
    arrivals_mean_per_s: float
    arrivals_peak_per_s: float
    # None if no worker has acknowledged anything.
    service_s: float | None
    workers_mean: int | None
    workers_peak: int | None


# The messages that arrive in each hour of the day; every day between the first and the last one counts.
ARRIVALS = Query(
    f"""
    with by_day as (
        select queue,
               cast(floor(at_ms / {DAY_MS}) as bigint) as day,
               cast(floor(at_ms / {HOUR_MS}) as bigint) % 24 as hour,
               count(*) as messages
        from {{events}}
        where event = 'published'
        group by all
    ), known as (
        select *, max(day) over (partition by queue) - min(day) over (partition by queue) + 1 as days
        from by_day
    )
    select queue, hour, days, cast(sum(messages) as bigint) as messages, max(messages) as peak
    from known
    group by queue, hour, days""",
    ("queue", "at_ms", "event"),
    done_only=True,
)
# The time from a delivery to its acknowledgement, by queue and hour, and by queue alone.  Two kinds of acknowledgement
# are left out, because they say nothing about work: a claim lasts as long as its batch, and a message that is delivered
# and acknowledged at once has no time of its own.
SERVICE = Query(
    f"""
    with lives as (
        select cluster, queue, incarnation, number,
               max(case when event = 'delivered' then at_ms end) as begun_ms,
               max(case when event = 'acked' then at_ms end) as acked_ms
        from {{events}}
        where event = 'delivered' and until_ms is not null or event = 'acked' and worker is not null
        group by cluster, queue, incarnation, number
    ), worked as (
        select queue, cast(floor(begun_ms / {HOUR_MS}) as bigint) % 24 as hour, acked_ms - begun_ms as taken_ms
        from lives
        where acked_ms >= begun_ms
    )
    select queue, hour, count(*) as messages, cast(sum(taken_ms) as bigint) as taken_ms
    from worked
    group by grouping sets ((queue, hour), (queue))""",
    ("cluster", "queue", "incarnation", "number", "event", "at_ms", "until_ms", "worker"),
    done_only=True,
)


def forecast(engine: Engine, events: Events, *, wait_s: float, percent: float) -> list[HourForecast]:
    """Return the workers that are needed for the mean of the days, and for the worst of them."""
    arrivals, worked = engine.run(events, ARRIVALS, SERVICE)
    service = {(row["queue"], row["hour"]): row["taken_ms"] / row["messages"] / 1000 for row in worked.to_pylist()}
    found = []
    for row in arrivals.to_pylist():
        rates = row["messages"] / row["days"] / HOUR_S, row["peak"] / HOUR_S
        taken_s = service.get((row["queue"], row["hour"]), service.get((row["queue"], None)))
        needed = [
            None if taken_s is None else workers_for(rate, taken_s, wait_s=wait_s, percent=percent) for rate in rates
        ]
        found.append(HourForecast(row["queue"], row["hour"], row["days"], *rates, taken_s, *needed))
    return sorted(found, key=lambda hour: (hour.queue, hour.hour))


def workers_for(rate: float, service_s: float, *, wait_s: float, percent: float) -> int:
    """Return the fewest workers with which `percent` of the messages wait no longer than `wait_s`."""
    load = rate * service_s
    # Work that takes no time that the journal could show needs somebody, too.
    if load <= 0:
        return min(1, math.ceil(rate))
    workers = math.floor(load) + 1
    while workers < WORKERS_MAX and waits_longer(load, workers, service_s, wait_s) > 1 - percent / 100:
        workers += 1
    return workers


def waits_longer(load: float, workers: int, service_s: float, wait_s: float) -> float:
    """Return the fraction of messages that wait longer than `wait_s`; `load` is the mean number of busy workers."""
    blocked = 1.0
    # Erlang B by recursion: factorials would overflow.
    for busy in range(1, workers + 1):
        blocked = load * blocked / (busy + load * blocked)
    waits = blocked / (1 - load / workers * (1 - blocked))
    return waits * math.exp(-(workers - load) * wait_s / service_s)
