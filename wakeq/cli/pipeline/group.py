"""`wakeq pipeline`: the group of the pipeline's commands, which are in files of their own."""

import click

from wakeq.cli.pipeline.history import archive, forecast, report
from wakeq.cli.pipeline.tasks import load, replay, settle


@click.group()
def pipeline() -> None:
    """Load files, archive and replay history, report on a broker."""


for command in (report, archive, forecast, load, replay, settle):
    pipeline.add_command(command)
