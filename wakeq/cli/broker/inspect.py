"""`wakeq inspect`: shows the content of a data directory, read-only, whether a broker runs on it or not."""

from pathlib import Path
from typing import Any

import click

from wakeq.cli.common import json_option
from wakeq.cli.output import print_facts, print_json, print_table

QUEUE_COLUMNS = ("qname", "id", "messages", "bytes", "leased")
TOTAL_COLUMNS = ("published", "delivered", "acked", "released", "expired", "dead")


@click.command()
@click.argument("data_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
def inspect(data_dir: Path, as_json: bool) -> int:
    """Show the content of DATA_DIR without changing anything.

    Queues are shown as of the state store's applied index; --json includes their policies.  Exit status 65 if something
    is damaged, 66 if it is of another release.
    """
    from wakeq.data.inspect import inspect as facts_of
    from wakeq.data.inspect import status_of

    facts = facts_of(data_dir)
    status = status_of(facts)
    if as_json:
        print_json(facts)
    else:
        queues = facts["state"].pop("queues", None)
        print_facts(facts)
        if queues is not None:
            print_table((*QUEUE_COLUMNS, *TOTAL_COLUMNS), map(_row, queues))
    return status


def _row(queue: dict[str, Any]) -> list[object]:
    facts = {**queue, **queue["totals"], "qname": queue["qname"] or '""'}
    return [facts[column] for column in (*QUEUE_COLUMNS, *TOTAL_COLUMNS)]
