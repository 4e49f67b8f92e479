"""The entry of the command line: the group of all commands, and the handling of errors.

    argv  -->  a command  -->  exit status

An error of the user, the broker or the disk is one line on standard error and a documented exit status
(docs/reference/exit-codes.md); only a bug shows a traceback.  The module of a command is imported when that command is
called, and what it needs of the server when it runs, so that `wakeq pub` starts quickly.
"""

import errno
import io
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

import click
from click.exceptions import NoSuchCommand
from click.shell_completion import get_completion_class

from wakeq import __version__
from wakeq.cli.common import EXIT_BROKEN_PIPE, EXIT_INTERRUPTED, EXIT_USAGE, Broker, select_credentials
from wakeq.cli.output import say
from wakeq.client import DEFAULT_ADDRESS
from wakeq.protocol.errors import WakeqError

SHELLS = ("bash", "zsh", "fish")

# Errors of a write to standard output, which come without a file name.
OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
# The words of click.
KIND_OF_NUMBER = re.compile(r"a valid (integer|float)(?: range)?\b")
KINDS_OF_NUMBERS = {"integer": "a whole number", "float": "a number"}
# What other message brokers call these commands.
SYNONYMS = {
    "worker": "run", "start": "serve", "server": "serve", "publish": "pub", "put": "pub", "send": "pub", "get": "fetch",
    "sub": "work", "consume": "work", "status": "top", "queues": "queue list", "info": "queue stats",
}  # fmt: skip
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    Use it as `source <(wakeq completion bash)`, or `wakeq completion fish | source`.  It completes commands, flags and
    the names of queues, for which it asks the broker.
    """
    found = get_completion_class(shell)
    assert found is not None, "click knows all three"
    click.echo(found(context.find_root().command, {}, "wakeq", "_WAKEQ_COMPLETE").source())


# The modules of the commands, by subject.
KINDS = {
    "Messages": dict.fromkeys(("pub", "fetch", "ack", "nack", "touch"), "messages"),
    "Workers": {"run": "worker.run", "work": "worker.work", "tasks": "worker.run", "workers": "operating"},
    "Queues and messages": {
        "queue": "queues", "top": "broker.top", "why": "operating", "history": "operating", "leases": "operating",
        "connections": "operating",
    },
    "The broker": {
        "serve": "broker.serve", "ping": "messages", "alive": "broker.serve", "doctor": "broker.serve",
        "bench": "broker.bench", "config": "broker.serve", "token": "broker.tokens", "cluster": "broker.cluster",
    },
    "Its data": dict.fromkeys(
        ("backup", "restore", "export", "import", "inspect", "repair", "reset-clock"), "broker.data"
    ),
    "Pipeline, other protocols, your shell": {
        "report": "report", "pipeline": "pipeline", "taskflux": "taskflux", "monique": "monique", "completion": "entry",
    },
}  # fmt: skip
MODULES = {name: module for modules in KINDS.values() for name, module in modules.items()}


class Commands(click.Group):
    """The group of all commands, listed by subject.  A command is imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in MODULES:
            return None
        home = import_module(f"wakeq.cli.{MODULES[cmd_name]}")
        # No function can be called `import`.
        command: click.Command = getattr(home, "import_" if cmd_name == "import" else cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, MODULES))
        room = formatter.width - width - 6
        for title, names in KINDS.items():
            commands = [command for name in names if (command := self.get_command(ctx, name)) is not None]
            with formatter.section(title):
                formatter.write_dl([(f"{one.name or '':{width}}", one.get_short_help_str(room)) for one in commands])


@click.group(cls=Commands, context_settings=HELP)
@click.option(
    "--broker",
    metavar="HOST:PORT",
    envvar="WAKEQ_BROKER",
    default=DEFAULT_ADDRESS,
    show_default=True,
    show_envvar=True,
    help="The worker port of the broker.",
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    envvar="WAKEQ_HTTP",
    default=None,
    show_envvar=True,
    help="The HTTP port of the broker, for operating commands; 8080 if the worker port is 2601.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    envvar="WAKEQ_TOKEN_FILE",
    show_envvar=True,
    help="A file with your token; WAKEQ_TOKEN may contain the token itself.",
)
@click.option(
    "--tls",
    metavar="FILE",
    envvar="WAKEQ_TLS",
    show_envvar=True,
    help="Connect with TLS and trust the authorities in this file, or `system` for those of the system.",
)
@click.version_option(__version__, prog_name="wakeq", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context, broker: str, http: str | None, token_file: str | None, tls: str | None) -> None:
    """A durable task broker: run one, publish and fetch messages, operate queues."""
    if not broker.strip(" ,"):
        raise click.UsageError("--broker is empty; write HOST:PORT")
    context.obj = Broker(broker, http)
    select_credentials(token_file, tls)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    # The shell asks for completions.
    if "_WAKEQ_COMPLETE" in os.environ:
        cli.main(prog_name="wakeq")
    _prepare_streams()
    try:
        with cli.make_context("wakeq", list(sys.argv[1:] if arguments is None else arguments)) as context:
            status = cli.invoke(context)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.exceptions.NoArgsIsHelpError as mistake:
        click.echo(mistake.format_message(), err=True)
        return EXIT_USAGE
    except click.ClickException as mistake:
        return _explain_usage(mistake)
    except WakeqError as error:
        say(str(error))
        return error.exit_status
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed the pipe.
        _drop_output()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        if error.filename is not None or error.errno not in OUTPUT_ERRORS:
            raise
        _drop_output()
        say(f"the output is incomplete: {error.strerror}; make room, or write it elsewhere")
        return os.EX_IOERR


def _prepare_streams() -> None:
    """Replace standard streams that the parent process has closed, so that no socket takes their file descriptors.

    Characters that the encoding of the output lacks are escaped.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for as long as the process lives
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Discard buffered output, or Python would try to write it again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain_usage(mistake: click.ClickException) -> int:
    """Print a click error in one line, like every other error."""
    context = getattr(mistake, "ctx", None)
    path = context.command_path if context else "wakeq"
    text = " ".join(mistake.format_message().split()).rstrip(".")
    text = KIND_OF_NUMBER.sub(lambda kind: KINDS_OF_NUMBERS[kind[1]], text)
    if isinstance(mistake, click.NoSuchOption) and any(mistake.option_name in one.opts for one in cli.params):
        command, path = path.removeprefix("wakeq "), "wakeq"
        text = f"{mistake.option_name} goes before the command: `wakeq {mistake.option_name} ... {command}`"
    if isinstance(mistake, NoSuchCommand):
        text = mistake.message.rstrip(".")
        if suggestion := _suggested(mistake):
            text = f"{text}; did you mean `{suggestion}`?"
    say(f"{text}{' Try' if text.endswith('?') else '; try'} `{path} --help`")
    return EXIT_USAGE


def _suggested(mistake: NoSuchCommand) -> str | None:
    """Return the command that the user probably meant: one spelt alike, inside a group, or with another name."""
    context = mistake.ctx
    assert context is not None
    assert isinstance(context.command, click.Group)
    names = {name: name for name in context.command.list_commands(context)}
    if context.command is cli:
        queue = cli.get_command(context, "queue")
        assert isinstance(queue, click.Group)
        names = {name: f"queue {name}" for name in queue.commands} | SYNONYMS | names
    wanted = mistake.command_name
    close = [wanted] if wanted in names else get_close_matches(wanted, names, 1)
    return f"{context.command_path} {names[close[0]]}" if close else None
