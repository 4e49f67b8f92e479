"""`wakeq completion`: the script that makes a shell complete the commands and options of wakeq."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    Use it as `source <(wakeq completion bash)`, or `wakeq completion fish | source`.
    """
    found = get_completion_class(shell)
    assert found is not None, "click knows all three"
    click.echo(found(context.find_root().command, {}, "wakeq", "_WAKEQ_COMPLETE").source())
