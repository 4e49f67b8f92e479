"""`wakeq pipeline`: data frames, files and history.  The verbs are in files of their own; here is the group."""

import click

from wakeq.cli.pipeline.history import archive, forecast, report
from wakeq.cli.pipeline.tasks import load, replay, settle


@click.group()
def pipeline() -> None:
    """Load files, archive and replay history, report on a broker."""


for verb in (report, archive, forecast, load, replay, settle):
    pipeline.add_command(verb)
