"""`wakeq report` and `wakeq pipeline forecast`: what a broker did, and how many workers it will need.

    data directories, brokers or a lake --> a page and JSON; a table of workers

`wakeq.pipeline` does the work, in this process unless the user wants Spark; this file has the arguments, the choice of
the engine and the final lines.  Modules are imported without interrupts: of those that are half imported, some complain
when the process ends.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wakeq.cli.common import HistoryPlace, Place, json_option, queue_name
from wakeq.cli.output import print_json, print_table, say
from wakeq.cli.progress import progress
from wakeq.cli.spark import spark_for, spark_options
from wakeq.pipeline.report.interrupts import uninterrupted

if TYPE_CHECKING:
    from wakeq.pipeline.report.engine import Engine

SECONDS = click.FloatRange(min=0, min_open=True)
Settings = tuple[tuple[str, str], ...]


LAKE = Place(exists=True, file_okay=False)


class Source(HistoryPlace):
    """A place with the history of a broker, or the address of a lake."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        return str(value) if "://" in str(value) else super().convert(value, param, ctx)


class Moment(click.ParamType[int]):
    """A moment, as milliseconds since 1970."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from wakeq.pipeline.journal.rows import moment_ms

        try:
            return value if isinstance(value, int) else moment_ms(value)
        except ValueError:
            self.fail(f"{value!r}: write it as 2026-01-31 or 2026-01-31T15:00", param, ctx)


@click.command()
@click.argument("sources", metavar="DATA_DIR|URL|LAKE...", nargs=-1, required=True, type=Source())
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", default="report.html",
              show_default=True, help="The page to write; the same data as JSON is written beside it.")  # fmt: skip
@click.option(
    "--since",
    type=Moment(),
    metavar="MOMENT",
    help="Omit events before this time, such as 2026-01-31 or 2026-01-31T15:00 (UTC).",
)
@click.option("--until", type=Moment(), metavar="MOMENT", help="Omit events at this time or later.")
@click.option("--queue", metavar="QUEUE", help="Only this queue.")
@click.option("--parquet", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Also write the tables of the report there.")  # fmt: skip
@spark_options
def report(
    sources: tuple[Path | str, ...], out: Path, since: int | None, until: int | None, queue: str | None,
    parquet: Path | None, master: str | None, conf: Settings,
) -> None:  # fmt: skip
    """Report what a broker did, as a page and as JSON.

    It has throughput, backlog, waiting times, work and failures.  DATA_DIR is the data directory of a broker, running,
    stopped or copied, and URL the HTTP port of a running one, such as http://HOST:8080; name several nodes of one
    cluster together.  LAKE was made by wakeq pipeline archive.

    The events are counted in this process; with --master or --conf, or under spark-submit, by Spark.
    """
    _check_packages()
    with uninterrupted():
        from wakeq.pipeline.report.events import Limits, events_in
        from wakeq.pipeline.report.run import make_report, write_report

    if out.suffix == ".json":
        raise click.UsageError(f"the JSON is written to {out.name}; name the page with --out, such as report.html")
    if since is not None and until is not None and since >= until:
        raise click.UsageError("--since must be before --until")
    events = events_in(sources, Limits(since, until, queue))
    with _engine("wakeq report", "counting events", master, conf) as engine:
        made, tables = make_report(engine, events)
    for path in write_report(made, tables, out, parquet):
        click.echo(path)
    if not made.queues:
        whose = "" if queue is None else f" of {queue_name(queue)}"
        say(f"no events{whose} in this time; the report is empty")


@click.command()
@click.argument("lake", metavar="LAKE", type=LAKE)
@click.option("--wait", "wait_s", type=SECONDS, default=1.0, show_default=True, metavar="S",
              help="How long a message may wait for a worker.")  # fmt: skip
@click.option("--percent", type=click.FloatRange(0, 100, min_open=True, max_open=True), default=90.0,
              show_default=True, metavar="N", help="The percentage of messages for which that must hold.")  # fmt: skip
@json_option
@spark_options
def forecast(
    lake: str, wait_s: float, percent: float, as_json: bool, master: str | None, conf: Settings
) -> None:  # fmt: skip
    """Estimate how many workers each queue needs, from a lake.

    For each hour of the day (UTC): messages a second, the time that a worker has one, and workers.  The peak is for the
    day on which most messages were published in that hour.
    """
    _check_packages()
    with uninterrupted():
        from wakeq.pipeline.journal.plan import is_url
        from wakeq.pipeline.report.events import lake_events
        from wakeq.pipeline.report.forecast import forecast as make_forecast

    if is_url(lake):
        raise click.UsageError(
            f"{lake} is a broker, not a lake; archive it first: wakeq pipeline archive {lake} --to LAKE"
        )
    events = lake_events(lake)
    with _engine("wakeq forecast", "reading the lake", master, conf, is_shown=not as_json) as engine:
        hours = make_forecast(engine, events, wait_s=wait_s, percent=percent)
    names = (
        "queue",
        "hour",
        "days",
        "arrivals_mean_per_s",
        "arrivals_peak_per_s",
        "service_s",
        "workers_mean",
        "workers_peak",
    )
    if as_json:
        print_json([{name: getattr(hour, name) for name in names} for hour in hours])
    else:
        rows = [[_rounded(getattr(hour, name)) for name in names] for hour in hours]
        print_table(names, rows, nothing="the lake has no messages of which a forecast can be made")
        unknown = sorted({hour.queue for hour in hours if hour.service_s is None})
        if unknown:
            say(
                f"no worker has acknowledged messages of {', '.join(unknown)}, so their working time is unknown; those "
                "that Spark claims do not count"
            )


def _rounded(value: Any) -> Any:
    return f"{value:.3g}" if isinstance(value, float) else value


def _check_packages() -> None:
    from wakeq.pipeline.spark import check_packages

    check_packages("pyarrow", "numpy", extra="report")


@contextmanager
def _engine(name: str, doing: str, master: str | None, conf: Settings, *, is_shown: bool = True) -> Iterator["Engine"]:
    """Yield what counts: Spark if it was asked for or is there already, else DuckDB."""
    from wakeq.pipeline.spark import SUBMITTED, check_packages

    if master is not None or conf or SUBMITTED in os.environ or _has_session():
        with spark_for(name, doing, master=master, conf=conf, is_shown=is_shown) as spark:
            from wakeq.pipeline.report.on_spark import OnSpark

            yield OnSpark(spark)
        return
    check_packages("duckdb", extra="report")
    with uninterrupted():
        from wakeq.pipeline.report.embedded import Embedded

    with progress(doing, "events", is_wanted=is_shown) as shown:
        yield Embedded(tell=shown.update)


def _has_session() -> bool:
    """Whether this program has started Spark already, as a notebook has that calls this command."""
    if "pyspark" not in sys.modules:
        return False
    from wakeq.pipeline.spark import session_that_is_there

    return session_that_is_there() is not None
