"""`wakeq reset-clock`: sets the cluster clock of a data directory to the wall clock."""

from pathlib import Path

import click

from wakeq.cli.common import confirm, yes_option
from wakeq.cli.output import say


@click.command("reset-clock")
@click.argument("data_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@yes_option
def reset_clock(data_dir: Path, yes: bool) -> None:
    """Let the next start on DATA_DIR begin with the wall clock.

    No broker may be running on it.  The time by which the cluster clock is behind passes at once: leases time out
    early, so a second worker may get a message that the first one still has; delayed messages are delivered early, and
    messages with an expiry may be lost.  In a cluster, stop all nodes and reset each of them: a node that starts among
    others takes their clock.
    """
    from wakeq.data.clock_reset import forget_mark, lag_ms

    lag = lag_ms(data_dir)
    if lag is None:
        say("nothing to do: the next start begins with the wall clock")
        return
    if lag > 0:
        early = f"every present lease, delay and expiry ends {lag / 1000:.1f} s early"
        cost = f"Then {early}; two workers may get the same message, and messages that have expired by then are gone."
    else:
        cost = f"It is {-lag / 1000:.1f} s ahead now, and goes back no further than the last entry of the log."
    confirm(f"Set the cluster clock to the wall clock at the next start? {cost}", yes=yes)
    forget_mark(data_dir)
    click.echo(f"the next start on {data_dir} begins with the wall clock")
