"""The forecast: how many workers each queue needs in each hour of the day, from a lake.

    lake --> arrivals and service time per queue and hour --> workers, so that a percentage waits no longer than a span

The model is M/M/c (Erlang C): arrivals at random, service times that vary as much as their mean. It is a rule of thumb
for planning: bursts of work need more workers, and work of constant length fewer.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wakeq.pipeline.lake.frames import happened
from wakeq.pipeline.lake.reading import MESSAGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR_S = 3600
WORKERS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class HourForecast:
    """One queue in one hour of the day (UTC).  Rates are messages a second."""

    queue: str
    hour: int
    days: int
    arrivals_mean: float
    arrivals_peak: float
    # None if nothing was acknowledged.
    service_s: float | None
    workers_mean: int | None
    workers_peak: int | None


def forecast(spark: "SparkSession", lake: Path, *, wait_s: float, percent: float) -> list[HourForecast]:
    """Return the workers that are needed for the mean of the days, and for the worst of them."""
    events = happened(spark, lake)
    service = _service_of(events)
    found = []
    for row in _arrivals_of(events):
        rates = row["mean"] / HOUR_S, row["peak"] / HOUR_S
        taken_s = service.get((row["queue"], row["hour"]), service.get((row["queue"], None)))
        needed = [
            None if taken_s is None else workers_for(rate, taken_s, wait_s=wait_s, percent=percent) for rate in rates
        ]
        found.append(HourForecast(row["queue"], row["hour"], row["days"], *rates, taken_s, *needed))
    return sorted(found, key=lambda hour: (hour.queue, hour.hour))


def _arrivals_of(events: "DataFrame") -> list[dict[str, Any]]:
    """Return the messages that arrive in each hour of the day; every day between the first and the last counts."""
    from pyspark.sql import functions as f

    published = events.where("event = 'published'").groupBy(
        "queue", f.to_date("at").alias("day"), f.hour("at").alias("hour")
    )
    by_day = published.agg(f.count("*").alias("messages"))
    ends = by_day.groupBy("queue").agg((f.datediff(f.max("day"), f.min("day")) + 1).alias("days"))
    by_hour = by_day.groupBy("queue", "hour").agg(f.sum("messages").alias("all"), f.max("messages").alias("peak"))
    rows = by_hour.join(ends, "queue").withColumn("mean", f.col("all") / f.col("days"))
    return [row.asDict() for row in rows.collect()]


def _service_of(events: "DataFrame") -> dict[tuple[str, int | None], float]:
    """Return the mean time from a delivery to its acknowledgement, by queue and hour, and by queue alone.

    Two kinds of acknowledgement are left out, because they say nothing about work: a claim lasts as long as its batch,
    and a message that is delivered and acknowledged at once has no time of its own.
    """
    from pyspark.sql import functions as f

    at, event = f.col("at").cast("double"), f.col("event")
    lives = (
        events.where("event = 'delivered' and until is not null or event = 'acked' and worker is not null")
        .groupBy(*MESSAGE)
        .agg(f.max(f.when(event == "delivered", at)).alias("begun"), f.max(f.when(event == "acked", at)).alias("acked"))
    )
    worked = lives.where("begun is not null and acked >= begun").select(
        "queue", f.hour(f.timestamp_seconds("begun")).alias("hour"), (f.col("acked") - f.col("begun")).alias("taken_s")
    )
    rows = worked.rollup("queue", "hour").agg(f.avg("taken_s").alias("taken_s")).where("queue is not null").collect()
    return {(row["queue"], row["hour"]): row["taken_s"] for row in rows}


def workers_for(rate: float, service_s: float, *, wait_s: float, percent: float) -> int:
    """Return the fewest workers with which `percent` of the messages wait no longer than `wait_s`."""
    load = rate * service_s
    if load <= 0:
        return 0
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
