"""`wakeq pipeline`: load, replay, settle, archive, forecast: data as messages, and history as data.

    files, an archive, a checkpoint; the history of a broker  -->  wakeq.pipeline  -->  what was done, on standard error

`wakeq.pipeline` does the work; this file has the arguments, the progress line and the final line.  forecast is in
report.py.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from wakeq.cli.common import Broker, json_option, queue_name
from wakeq.cli.output import print_json, say, show_progress
from wakeq.cli.report import forecast
from wakeq.cli.spark import spark_for

if TYPE_CHECKING:
    from wakeq.pipeline.load import Progress

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)

DIRECTORIES = click.argument(
    "data_dirs",
    metavar="DATA_DIR...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)


@click.group()
def pipeline() -> None:
    """Load files, archive and replay history, plan workers."""


@pipeline.command()
@click.argument("files", type=FILE, nargs=-1, required=True)
@click.option("--to", "queue", required=True, metavar="QUEUE", help="The queue to publish to.")
@click.option(
    "--body", metavar="COLUMN", help="The column that becomes the body; default: the whole row, as a JSON object."
)
@click.option("--priority", metavar="COLUMN", help="The column that becomes the priority.")
@click.option("--delay", metavar="COLUMN", help="The column that becomes the delay, in seconds.")
@click.option("--rate", type=click.IntRange(min=1), metavar="N", help="At most this many messages per second.")
@click.option("--name", help="The identity of this load; default: its files in their present form, and these columns.")
@click.pass_obj
def load(
    broker: Broker,
    files: tuple[Path, ...],
    queue: str,
    body: str | None,
    priority: str | None,
    delay: str | None,
    rate: int | None,
    name: str | None,
) -> None:
    """Publish each row of FILES (Parquet, CSV, JSON lines) once.

    If it is interrupted, the same command continues where it was, at any --rate.  A file that was moved or changed
    meanwhile counts as a new one and is loaded from its beginning, unless you passed --name: then the load continues
    after the rows that were published under this name.
    """
    from wakeq.client.bulk import BulkClient
    from wakeq.pipeline.session import check_packages

    check_packages("pyarrow", "numpy", extra="journal")
    from wakeq.pipeline.load import Mapping, load

    def show(progress: "Progress") -> None:
        show_progress(f"{progress.rows:,} messages published ...")

    with BulkClient(broker.address) as client:
        done = load(client, files, queue, Mapping(body, priority, delay), name=name, rate=rate, tell=show)
    before = f"; {done.skipped:,} were published by another run" if done.skipped else ""
    say(f"{done.rows:,} messages published to {queue_name(queue)}{before}")


@pipeline.command()
@click.argument("lake", type=FOLDER)
@click.option("--queue", required=True, metavar="QUEUE", help="The queue to which the messages were published.")
@click.option(
    "--where", default="true", show_default=True, metavar="EXPR", help="Only these: a condition in Spark SQL."
)
@click.option("--to", "target", required=True, metavar="QUEUE", help="The queue to publish them to now.")
@click.option("--dry-run", is_flag=True, help="Only count the messages.")
@click.pass_obj
def replay(broker: Broker, lake: Path, queue: str, where: str, target: str, dry_run: bool) -> None:
    """Publish messages again that were once published to a queue.

    They come from an archive with bodies.
    """
    from wakeq.client.bulk import BulkClient
    from wakeq.pipeline.session import check_packages

    check_packages("pyspark", "pyarrow")
    from wakeq.pipeline.lake import check_lake, published
    from wakeq.pipeline.lake import replay as again

    check_lake(lake)
    # An unreachable broker is reported before Spark has started.
    BulkClient(broker.address).close()
    with spark_for("wakeq replay", "counting" if dry_run else "publishing") as spark:
        events = published(spark, lake, queue, where)
        count = events.count() if dry_run else again(events, broker.address, target)
    done = "would be published" if dry_run else "published"
    say(f"{count:,} messages of {queue_name(queue)} {done} to {queue_name(target)}")


@pipeline.command()
@click.argument("checkpoint", type=FOLDER)
@click.pass_obj
def settle(broker: Broker, checkpoint: Path) -> None:
    """Acknowledge the last batch of a stopped streaming query.

    Spark tells a source that a batch is finished only when the next one begins; this command does it for the last
    batch.  It connects to the broker that the query read from, unless --broker names another address.
    """
    from wakeq.pipeline.session import check_packages

    check_packages("pyspark", "pyarrow")
    from wakeq.pipeline.stream.settling import settle_checkpoint

    # WAKEQ_BROKER does not count: it fits no single checkpoint.
    source = click.get_current_context().find_root().get_parameter_source("broker")
    settled = settle_checkpoint(checkpoint, broker.address if source is ParameterSource.COMMANDLINE else None)
    for one in settled:
        say(f"{one.count:,} messages of {queue_name(one.queue)} acknowledged, at {one.broker}")
    if not settled:
        say(f"{checkpoint}: its query has finished no batch, so there is nothing to acknowledge")


@pipeline.command()
@DIRECTORIES
@click.option("--to", "lake", required=True, metavar="LAKE", type=click.Path(file_okay=False, path_type=Path),
              help="The folder of Parquet files; created if it does not exist.")  # fmt: skip
@click.option("--bodies", is_flag=True, help="Also archive the bodies of messages.")
@click.option("--skip-gaps", is_flag=True, help="Skip, for ever, entries that none of the directories has any more.")
@json_option
def archive(data_dirs: tuple[Path, ...], lake: Path, bodies: bool, skip_gaps: bool, as_json: bool) -> None:
    """Add the events since the last run to a lake.

    Each event is added once.  If it is killed, the next run continues where it was.  Run it more often than the
    journal is kept.
    """
    from wakeq.pipeline.session import check_packages

    check_packages("pyarrow", "numpy", extra="journal")
    from wakeq.pipeline.lake import archive as bring_up_to_date

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


pipeline.add_command(forecast)
