"""The questions that a report asks, in SQL that DuckDB and Spark both understand.

    events, one row each --> counts by time; spans of waiting and of work in bins; the slowest workers

The columns of `{events}` are those of events.py. There are two passes over the events: one counts them, one gathers the
events of each message. Spans are counted in bins that grow by one percent, so that a percentile is exact to half of
that, however many spans there are.

Both engines must return the same rows. So a query divides with `/` and `floor`, casts its sums, and never asks for a
value where two would do.
"""

import math
from dataclasses import dataclass

from wakeq.pipeline.report.report import BIN_GROWTH, LEAVING, PERCENTILES, WORKER_MESSAGES_MIN, WORKERS_MAX


@dataclass(frozen=True, slots=True)
class Query:
    """A query about `{events}`, and the columns that it needs."""

    sql: str
    columns: tuple[str, ...]
    # Only events that took effect.
    done_only: bool = False


PERIOD = Query("select min(at_ms) as first_ms, max(at_ms) as last_ms from {events}", ("at_ms",))


def counts_query(bucket_s: int) -> Query:
    """Count events by time, queue and incarnation, event, outcome and reason.

    An event that emptied a queue has a row of its own, with its index in `emptied`.
    """
    sql = f"""
        select cast(floor(at_ms / {1000 * bucket_s}) as bigint) * {bucket_s} as at_s,
               cluster, queue, incarnation, event, outcome, reason,
               case when event in ('purged', 'deleted') then entry end as emptied,
               count(*) as events,
               cast(sum(size) as bigint) as bytes
        from {{events}}
        group by all"""
    columns = ("at_ms", "cluster", "queue", "incarnation", "event", "outcome", "reason", "entry", "size")
    return Query(sql, columns)


def spans_query() -> Query:
    """Count the spans of messages, of those that were known in this time.

    A row is of one of four kinds. `waiting` (for the first delivery) and `working` (after the last one) count messages
    by incarnation and bin; `life` has facts that need the whole life of a message, by incarnation; `worker` has
    percentiles, in bins, of one of the slowest workers. Workers are compared here, because they are as many as the
    messages if every message has a connection of its own.

    A stashed message is due when it is published, or later if its delay, which is known from the stashing, is longer.
    The last worker is looked up by entry, as two deliveries may have one moment.
    """
    leaving = ", ".join(f"'{event}'" for event in LEAVING)
    bins = ", ".join(
        f"min(case when messages_so_far * 100 >= messages_in_all * {percent} then bin end) over (partition by {_OWNER})"
        f" as p{percent}"
        for percent in PERCENTILES
    )
    percentiles = ", ".join(f"case when kind = 'worker' then p{percent} end as p{percent}" for percent in PERCENTILES)
    sql = f"""
        with lives as (
            select cluster, incarnation, number,
                   min(case when event = 'published' then coalesce(until_ms, at_ms) end) as published_ms,
                   max(case when event = 'stashed' then until_ms end) as delayed_ms,
                   sum(case when event = 'stashed' then size end) as stashed_bytes,
                   min(case when event = 'delivered' then at_ms end) as first_ms,
                   max(case when event = 'delivered' then at_ms end) as last_ms,
                   max_by(coalesce(worker, 0), case when event = 'delivered' then entry end) as worker,
                   max(case when event = 'acked' then at_ms end) as acked_ms,
                   count(case when event = 'delivered' then 1 end) as deliveries,
                   max(case when event in ({leaving}) then 1 else 0 end) as is_over
            from {{events}}
            where number is not null
            group by cluster, incarnation, number
        ), due as (
            select *, case when published_ms is not null then greatest(published_ms, delayed_ms) end as due_ms
            from lives
        ), spans as (
            select cluster, incarnation,
                   {_bin_of("first_ms - due_ms")} as waiting,
                   {_bin_of("acked_ms - last_ms")} as working,
                   case when worker > 0 then worker end as worker,
                   case when deliveries > 1 then 1 else 0 end as redelivered,
                   case when deliveries > 1 then deliveries - 1 else 0 end as redeliveries,
                   case when due_ms is null then is_over else 0 end as from_before,
                   case when due_ms is not null then stashed_bytes end as stashed_bytes
            from due
        ), grouped as (
            select case when grouping(incarnation) = 1 then 'worker'
                        when grouping(waiting) = 0 then 'waiting'
                        when grouping(working) = 0 then 'working'
                        else 'life' end as kind,
                   cluster, incarnation, worker, coalesce(waiting, working) as bin,
                   count(*) as messages,
                   sum(redelivered) as redelivered,
                   sum(redeliveries) as redeliveries,
                   sum(from_before) as from_before,
                   sum(stashed_bytes) as stashed_bytes
            from spans
            group by grouping sets ((cluster, incarnation), (cluster, incarnation, waiting),
                                    (cluster, incarnation, working), (cluster, worker, working))
        ), summed as (
            select *,
                   sum(messages) over (partition by {_OWNER}) as messages_in_all,
                   sum(messages) over (partition by {_OWNER} order by bin rows unbounded preceding) as messages_so_far
            from grouped
            where kind = 'life' or bin is not null and (kind <> 'worker' or worker is not null)
        ), measured as (
            select *, {bins}
            from summed
            where kind <> 'worker' or messages_in_all >= {WORKER_MESSAGES_MIN}
        ), ranked as (
            select *, row_number() over (partition by kind order by p90 desc, worker, cluster) as place
            from measured
            where kind <> 'worker' or bin = p90
        )
        select kind, cluster, incarnation, worker,
               case when kind <> 'worker' then bin end as bin,
               cast(case when kind = 'worker' then messages_in_all else messages end as bigint) as messages,
               cast(redelivered as bigint) as redelivered,
               cast(redeliveries as bigint) as redeliveries,
               cast(from_before as bigint) as from_before,
               cast(coalesce(stashed_bytes, 0) as bigint) as stashed_bytes,
               {percentiles}
        from ranked
        where kind <> 'worker' or place <= {WORKERS_MAX}"""
    columns = ("at_ms", "cluster", "incarnation", "number", "event", "until_ms", "size", "worker", "entry")
    return Query(sql, columns, done_only=True)


# All rows of a worker; rows of other kinds have no worker, and what is computed of them together is not used.
_OWNER = "kind, cluster, worker"


def _bin_of(ms: str) -> str:
    return (
        f"case when {ms} <= 0 then 0 "
        f"when {ms} > 0 then 1 + cast(floor(ln(greatest({ms}, 1)) / {math.log(BIN_GROWTH)!r}) as int) end"
    )
