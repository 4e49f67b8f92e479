"""`wakeq pipeline`: data frames, files and history.  The verbs are in files of their own; here is the group."""

import click

from wakeq.cli.pipeline_history import archive, forecast, report
from wakeq.cli.pipeline_tasks import load, replay, settle


@click.group()
def pipeline() -> None:
    """Make messages of files and of history, look after streaming queries, and say what a broker did."""


for verb in (report, archive, forecast, load, replay, settle):
    pipeline.add_command(verb)
