"""`wakeq pipeline`: load, claims, settle, release, archive, forecast: data as messages, and history as data.

    files, an archive, a checkpoint; the history of a broker  -->  wakeq.pipeline  -->  what was done, on standard error

`wakeq.pipeline` does the work; this file has the arguments, the progress and the final line.  forecast is in
report.py.
"""

from pathlib import Path

import click
from click.core import ParameterSource

from wakeq.cli.common import QUEUE, Broker, Place, history_places, json_option, queue_name, refuse_no_name
from wakeq.cli.output import counted, moment, print_json, print_table, say
from wakeq.cli.progress import progress
from wakeq.cli.report import forecast

PLACE = Place(exists=True)
CLAIM_COLUMNS = ("source", "epoch", "messages", "until", "published", "readers")


@click.group()
def pipeline() -> None:
    """Load data, settle or release batches of Spark, archive, plan."""


@pipeline.command()
@click.argument("sources", metavar="SOURCE...", type=PLACE, nargs=-1, required=True)
@click.option(
    "--to",
    "target",
    required=True,
    type=QUEUE,
    metavar="QUEUE",
    callback=refuse_no_name,
    help="The queue to publish to.",
)
@click.option("--where", metavar="SQL", help="Only rows for which this condition holds, in the SQL of DuckDB.")
@click.option("--rate", type=click.IntRange(min=1), metavar="N", help="At most this many messages per second.")
@click.option(
    "--name",
    metavar="NAME",
    help="The identity of this load; default: its sources and options, and files as they are now.",
)
@click.option("--dry-run", is_flag=True, help="Only count the messages.")
@click.option(
    "--body", metavar="COLUMN", help="Of files: the column that becomes the body; default: the row, as a JSON object."
)
@click.option("--priority", metavar="COLUMN", help="Of files: the column that becomes the priority.")
@click.option("--delay", metavar="COLUMN", help="Of files: the column that becomes the delay, in seconds.")
@click.option("--queue", metavar="QUEUE", help="Of a lake: the queue to which the messages were published.")
@click.pass_obj
def load(
    broker: Broker, sources: tuple[str, ...], target: str, where: str | None, rate: int | None, name: str | None,
    dry_run: bool, body: str | None, priority: str | None, delay: str | None, queue: str | None,
) -> None:  # fmt: skip
    """Publish each row of files once, or each message of a lake again.

    SOURCE is one or more files (Parquet, CSV, JSON lines), or a lake with bodies, a folder or an address.

    If it is interrupted, the same command continues where it was, at any --rate.  A file that was moved or changed
    meanwhile counts as a new one and is loaded from its beginning, unless you passed --name: then the load continues
    after the rows that were published under this name.
    """
    from wakeq.client.bulk import BulkClient
    from wakeq.pipeline.spark import check_packages

    check_packages("pyarrow", "numpy", extra="journal")
    from wakeq.pipeline.load.files import Files, Mapping
    from wakeq.pipeline.load.load import Source, count
    from wakeq.pipeline.load.load import load as publish

    source: Source
    lakes = [place for place in sources if "://" in place or Path(place).is_dir()]
    if where is not None or lakes:
        check_packages("duckdb", extra="report")
    if lakes:
        from wakeq.pipeline.lake import Lake
        from wakeq.pipeline.load.messages import LakeMessages

        lake = Lake(lakes[0])
        _check_lake_options(sources, queue=queue, columns=(body, priority, delay))
        source = LakeMessages(lake, queue or "", where)
        source.check_queue()
    elif queue is not None:
        raise click.UsageError("--queue is for a lake, and these are files; leave it out")
    else:
        source = Files(list(map(Path, sources)), Mapping(body, priority, delay), where)

    with BulkClient(broker.address) as client, progress("counting messages" if dry_run else "loading") as shown:
        if dry_run:
            found = count(client, source, target, name=name)
        else:
            shown.begin("publishing", "messages")
            done = publish(client, source, target, name=name, rate=rate, tell=lambda so_far: shown.update(so_far.rows))
    if dry_run:
        say(f"{counted(found, 'message')} would be published to {queue_name(target)}")
        return
    continued = "; another run published the ones before" if done.continues else ""
    say(f"{counted(done.rows, 'message')} published to {queue_name(target)}{continued}")


def _check_lake_options(sources: tuple[str, ...], *, queue: str | None, columns: tuple[str | None, ...]) -> None:
    if len(sources) > 1:
        raise click.UsageError("give files, or one lake, but not both")
    if queue is None:
        raise click.UsageError(f"{sources[0]} is a lake; pass --queue, whose messages are to be published")
    if any(column is not None for column in columns):
        raise click.UsageError("--body, --priority and --delay are for files; messages of a lake have these")


@pipeline.command()
@click.argument("name", type=QUEUE, metavar="QUEUE")
@json_option
@click.pass_obj
def claims(broker: Broker, name: str, as_json: bool) -> None:
    """List what streaming queries have claimed of QUEUE.

    A claim belongs to a source, whose name is in the checkpoint of a query, or is its option source.  The readers are
    the queries that have read from it, by their ids.  `wakeq pipeline release` ends the claims of a source.
    """
    with broker.admin() as client:
        answer = client.call("GET", "/claims", queue=name)
    if as_json:
        print_json({"queue": name, **answer})
    else:
        rows = [one | {"until": moment(one["until_ms"]), "published": one["is_published"]} for one in answer["claims"]]
        print_table(
            CLAIM_COLUMNS,
            [[row[column] for column in CLAIM_COLUMNS] for row in rows],
            nothing=f"no streaming query has claimed messages of {queue_name(name)}",
        )


@pipeline.command()
@click.argument("checkpoint")
@click.pass_obj
def settle(broker: Broker, checkpoint: str) -> None:
    """Acknowledge the last batch of a stopped streaming query.

    CHECKPOINT is a folder, or a URL such as s3://bucket/checkpoint.

    Spark tells a source that a batch is finished only when the next one begins; this command does it for the last
    batch.  It connects to the broker that the query read from, unless --broker names another address.
    """
    from wakeq.pipeline.stream.checkpoint import Checkpoint
    from wakeq.pipeline.stream.settling import settle_checkpoint

    with progress("settling"):
        settled = settle_checkpoint(Checkpoint(checkpoint), _named(broker))
    for one in settled:
        held = f"; a batch that is not finished holds {counted(one.held, 'message')}" if one.held else ""
        say(f"{queue_name(one.queue)}: {counted(one.acknowledged, 'message')} acknowledged, at {one.broker}{held}")
    if not settled:
        say(f"{checkpoint}: its query has planned no batch, so there is nothing to acknowledge")


@pipeline.command()
@click.argument("checkpoint", required=False)
@click.option(
    "--queue", type=QUEUE, metavar="QUEUE", help="Instead of a checkpoint: the queue of a query with option source."
)
@click.option("--source", metavar="NAME", help="The name that this query has as option source.")
@click.pass_obj
def release(broker: Broker, checkpoint: str | None, queue: str | None, source: str | None) -> None:
    """Release the messages that a stopped streaming query still holds.

    CHECKPOINT is a folder, or a URL such as s3://bucket/checkpoint.

    A query that does not come back holds its last batch for a day.  This command returns those messages to their queue
    now, without counting a failure; messages of finished batches, and of a batch that was published, are acknowledged.
    Stop the query first: a running one ends with EPOCH_EXPIRED.
    It connects to the broker that the query read from, unless --broker names another address.
    """
    if (checkpoint is None) == (queue is None) or (queue is None) != (source is None):
        raise click.UsageError("give a CHECKPOINT, or both --queue and --source")
    if queue is not None:
        from wakeq.client.bulk import BulkClient
        from wakeq.pipeline.stream.settling import release_source

        with BulkClient(broker.address) as client, progress("releasing"):
            ended = release_source(client, queue, source or "")
        _say_released(queue, *ended)
        return
    from wakeq.pipeline.stream.checkpoint import Checkpoint
    from wakeq.pipeline.stream.settling import release_checkpoint

    with progress("releasing"):
        released = release_checkpoint(Checkpoint(checkpoint or ""), _named(broker))
    for one in released:
        _say_released(one.queue, one.acknowledged, one.released, f", at {one.broker}")
    if not released:
        say(f"{checkpoint}: its query has planned no batch, so there is nothing to release")


def _say_released(queue: str, acknowledged: int, released: int, where: str = "") -> None:
    say(f"{queue_name(queue)}: {counted(acknowledged, 'message')} acknowledged, {released:,} released{where}")


def _named(broker: Broker) -> str | None:
    """Return the address of --broker; WAKEQ_BROKER does not count, it fits no single checkpoint."""
    given = click.get_current_context().find_root().get_parameter_source("broker")
    return broker.address if given is ParameterSource.COMMANDLINE else None


@pipeline.command()
@history_places
@click.option("--to", "lake", required=True, metavar="LAKE", type=click.Path(file_okay=False, path_type=str),
              help="The folder of Parquet files, or its address, such as s3://bucket/lake.")  # fmt: skip
@click.option("--bodies", is_flag=True, help="Also archive the bodies of messages.")
@click.option("--skip-gaps", is_flag=True, help="Skip, for ever, entries that none of these places has any more.")
@json_option
def archive(places: tuple[Path | str, ...], lake: str, bodies: bool, skip_gaps: bool, as_json: bool) -> None:
    """Add the events since the last run to a lake.

    They come from the data directory of a broker, or from its HTTP port, such as http://HOST:8080.  Each event is
    added once.  If it is killed, the next run continues where it was.  Run it more often than the journal is kept.

    LAKE is a folder, or an address that fsspec opens: s3:// or s3a:// (pip install s3fs), gs:// (gcsfs), abfs:// or
    abfss:// (adlfs), hdfs:// and others.
    """
    from wakeq.pipeline.spark import check_packages

    check_packages("pyarrow", "numpy", extra="journal")
    from wakeq.pipeline.lake.archiving import archive as bring_up_to_date

    with progress("archiving", "events", is_wanted=not as_json) as shown:
        done = bring_up_to_date(
            places, lake, bodies=bodies, skip_gaps=skip_gaps, tell=lambda events, _through: shown.update(events)
        )
    if done.missing:
        say(f"{done.missing:,} entries were removed before they were archived; keep more, or archive more often")
    if not done.is_exclusive:
        say(
            f"the storage of {lake} does not refuse a second writer; never let two archives of one cluster write there "
            "at the same time"
        )
    if as_json:
        print_json({"events": done.events, "files": done.files, "missing": done.missing, "next_index": done.next_index})
    else:
        click.echo(f"{counted(done.events, 'event')} in {counted(done.files, 'file')}")


pipeline.add_command(forecast)
