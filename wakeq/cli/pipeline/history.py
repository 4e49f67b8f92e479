"""`wakeq pipeline report|archive|forecast`: the history of a broker as a page, as Parquet files, as a plan."""

from pathlib import Path
from typing import Any

import click

from wakeq.cli.common import json_option
from wakeq.cli.output import print_json, print_table, say, show_progress
from wakeq.cli.pipeline.spark import spark_for

DIRECTORIES = click.argument(
    "data_dirs",
    metavar="DATA_DIR...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
SECONDS = click.FloatRange(min=0, min_open=True)


@click.command()
@DIRECTORIES
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default="report.html", show_default=True,
              help="The page to write; the same data as JSON is written beside it.")  # fmt: skip
@click.option(
    "--since",
    metavar="MOMENT",
    help="Omit events before this time, such as 2026-01-31 or 2026-01-31T15:00 (UTC).",
)
@click.option("--until", metavar="MOMENT", help="Omit events at this time or later.")
@click.option("--queue", metavar="QUEUE", help="Only this queue.")
@click.option("--parquet", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Also write the tables of the report there.")  # fmt: skip
@click.option("--verbose", is_flag=True, help="Show Spark's warnings.")
def report(
    data_dirs: tuple[Path, ...], out: Path, since: str | None, until: str | None, queue: str | None,
    parquet: Path | None, verbose: bool,
) -> None:  # fmt: skip
    """Report what a broker did, as a page and as JSON.

    Throughput, backlog, waiting times, work and failures.  DATA_DIR is the data directory of a broker, running, stopped
    or copied; name those of several nodes of one cluster together.
    """
    from wakeq.pipeline.session import check_packages

    check_packages("pyspark", "pyarrow")
    from wakeq.pipeline.journal.schema import Wanted
    from wakeq.pipeline.report.run import make_report, write_report

    wanted = Wanted(since_ms=_moment("--since", since), until_ms=_moment("--until", until), queue=queue)
    with spark_for("wakeq report", "counting events", verbose=verbose) as spark:
        made, tables = make_report(spark, data_dirs, wanted)
    for path in write_report(made, tables, out, parquet):
        click.echo(path)


@click.command()
@DIRECTORIES
@click.option("--to", "lake", required=True, metavar="LAKE", type=click.Path(file_okay=False, path_type=Path),
              help="The folder of Parquet files; created if it does not exist.")  # fmt: skip
@click.option("--bodies", is_flag=True, help="Also archive the bodies of messages.")
@click.option("--skip-gaps", is_flag=True, help="Skip for good what none of the directories has any more.")
@json_option
def archive(data_dirs: tuple[Path, ...], lake: Path, bodies: bool, skip_gaps: bool, as_json: bool) -> None:
    """Add the events since the last run to a lake.

    Each event is added once.  If it is killed, the next run continues where it was.  Run it more often than the
    journal is kept.
    """
    from wakeq.pipeline.session import check_packages

    check_packages("pyarrow", "numpy", extra="journal")
    from wakeq.pipeline.lake.archive import archive as bring_up_to_date

    def tell(events: int, _through: int) -> None:
        show_progress(f"{events:,} events archived ...")

    done = bring_up_to_date(data_dirs, lake, bodies=bodies, skip_gaps=skip_gaps, tell=tell)
    show_progress("")
    if done.missing:
        say(f"{done.missing:,} entries were removed before they were archived; keep more, or archive more often")
    if as_json:
        print_json({"events": done.events, "files": done.files, "missing": done.missing, "next_index": done.next_index})
    else:
        click.echo(f"{done.events} events in {done.files} files")


@click.command()
@click.argument("lake", metavar="LAKE", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--wait", "wait_s", type=SECONDS, default=1.0, show_default=True, metavar="S",
              help="How long a message may wait for a worker.")  # fmt: skip
@click.option("--percent", type=click.FloatRange(0, 100, min_open=True, max_open=True), default=90.0,
              show_default=True, metavar="N", help="The percentage of messages for which that must hold.")  # fmt: skip
@json_option
def forecast(lake: Path, wait_s: float, percent: float, as_json: bool) -> None:
    """Estimate how many workers each queue needs, from a lake.

    For each hour of the day (UTC).  The peak is for the day on which most messages were published in that hour.
    """
    from wakeq.pipeline.session import check_packages

    check_packages("pyspark", "pyarrow")
    from wakeq.pipeline.lake.lake import check_lake
    from wakeq.pipeline.report.forecast import forecast as make_forecast

    check_lake(lake)
    with spark_for("wakeq forecast", "reading the lake") as spark:
        hours = make_forecast(spark, lake, wait_s=wait_s, percent=percent)
    names = ("queue", "hour", "days", "arrivals_mean", "arrivals_peak", "service_s", "workers_mean", "workers_peak")
    if as_json:
        print_json([{name: getattr(hour, name) for name in names} for hour in hours])
    else:
        print_table(names, [[_rounded(getattr(hour, name)) for name in names] for hour in hours])


def _rounded(value: Any) -> Any:
    return f"{value:.3g}" if isinstance(value, float) else value


def _moment(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    from wakeq.pipeline.report.moments import moment_ms

    try:
        return moment_ms(text)
    except ValueError:
        raise click.BadParameter(f"{text!r}: write it as 2026-01-31 or 2026-01-31T15:00", param_hint=option) from None
