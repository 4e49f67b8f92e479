"""`wakeq inspect`: what is in a data directory, read-only, whether a broker runs on it or not."""

from pathlib import Path

import click

from wakeq.cli.common import json_option
from wakeq.cli.output import print_facts, print_json


@click.command()
@click.argument("data_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
def inspect(data_dir: Path, as_json: bool) -> None:
    """Show what is in DATA_DIR; nothing in it is changed."""
    from wakeq.inspect import inspect as look_into

    facts = look_into(data_dir)
    if as_json:
        print_json(facts)
    else:
        print_facts(facts)
