"""Shared parts of the commands: the address of the broker, confirmation before destruction, exit statuses."""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

# Defined there because it is needed before anything else is loaded.
from wakeq.cli import EXIT_INTERRUPTED as EXIT_INTERRUPTED
from wakeq.cli.output import say
from wakeq.client import Client
from wakeq.client.route import PORT, parse_address
from wakeq.config.setting import parse_bytes

if TYPE_CHECKING:
    from wakeq.client.admin import AdminClient

TIMEOUTS = ("connect_timeout_s", "answer_timeout_s", "reconnect_for_s")
EXIT_FAILED = 1
EXIT_USAGE = 2
# There was no message to fetch, or the named one was not there.
EXIT_NOTHING = 3
EXIT_BROKEN_PIPE = 141
# How long the shell waits for a connection, and for the answer, when it completes a name.
COMPLETE_S_MAX = 0.5

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Broker:
    """The addresses of the broker that a command talks to."""

    address: str
    http: str | None = None

    def admin(self) -> "AdminClient":
        """Return a client of its HTTP API."""
        from wakeq.client.admin import AdminClient

        return AdminClient(self.http_address)

    @property
    def addresses(self) -> list[str]:
        """The addresses of its nodes, one by one."""
        return [one.strip() for one in self.address.split(",") if one.strip()]

    @property
    def http_address(self) -> str:
        """The HTTP ports of this broker and no other: the default port, where the worker port is the default one."""
        from wakeq.client.admin import HTTP_PORT

        return self.http or self._beside_worker_ports(HTTP_PORT, "HTTP", "--http {host}:PORT, or set WAKEQ_HTTP")

    @property
    def taskflux_address(self) -> str:
        """The TaskFlux ports of this broker, found as its HTTP ports are."""
        from wakeq.client.taskflux.call_script import PORT as TASKFLUX_PORT

        return self._beside_worker_ports(TASKFLUX_PORT, "TaskFlux", "--address {host}:PORT, or set WAKEQ_TASKFLUX")

    def _beside_worker_ports(self, wanted: int, kind: str, advice: str) -> str:
        """Return the addresses with this default port for the nodes whose worker port is the default one."""
        nodes = [parse_address(one) for one in self.addresses]
        hosts = [f"[{host}]" if ":" in host else host for host, port in nodes if port == PORT]
        if not hosts:
            host = nodes[0][0]
            raise click.UsageError(f"the {kind} port of {self.address} is unknown; pass {advice.format(host=host)}")
        return ",".join(f"{host}:{wanted}" for host in hosts)

    @contextmanager
    def connect(self, *, within_s: float | None = None) -> Iterator[Client]:
        """Connect to its worker port; with `within_s`, nothing may take longer than that."""
        timeouts: dict[str, Any] = {} if within_s is None else dict.fromkeys(TIMEOUTS, within_s)
        with Client(self.address, **timeouts) as client:
            yield client


class ByteCount(click.ParamType[int]):
    """A number of bytes, written as in the settings."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        count = value if isinstance(value, int) else parse_bytes(str(value).strip())
        if count is None:
            self.fail(f"{value!r} is not a number of bytes; write 65536 or 64KiB", param, ctx)
        return count


class Place(click.Path):
    """A path that exists, or an address, which is taken as it is."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if "://" in str(value) else super().convert(value, param, ctx)


class HistoryPlace(click.ParamType[Path | str]):
    """A place with the history of a broker: its data directory, or the URL of its HTTP port."""

    name = "place"
    _directory = click.Path(exists=True, file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        if str(value).startswith(("http://", "https://")):
            return str(value)
        if re.fullmatch(r"[^/]+:\d+", str(value)) and not os.path.exists(value):
            self.fail(f"there is no directory {value}; for the HTTP port of a broker write http://{value}", param, ctx)
        return self._directory.convert(value, param, ctx)


class QueueName(click.ParamType[str]):
    """The name of a queue; the shell completes it with the names that the broker knows."""

    name = "queue"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        # A warning on the terminal would spoil the line that the user types.
        logging.disable()
        given = ctx.find_root().params
        select_credentials(given.get("token_file"), given.get("tls"))
        try:
            with Broker(given["broker"]).connect(within_s=COMPLETE_S_MAX) as client:
                names = [str(one["qname"]) for one in client.queues(incomplete)]
        # Whatever is wrong, a line that is being typed is no place to say it.
        except Exception:
            return []
        return [CompletionItem(name) for name in names if name]


QUEUE = QueueName()

# For commands that read history.
history_places = click.argument("places", metavar="DATA_DIR|URL...", nargs=-1, required=True, type=HistoryPlace())


def select_credentials(token_file: str | None, tls: str | None) -> None:
    """Pass --token-file and --tls on to every client, also to one that a command's own program creates."""
    os.environ.update({"WAKEQ_TOKEN_FILE": token_file} if token_file else {})
    os.environ.update({"WAKEQ_TLS": tls} if tls else {})


def json_option(command: Command) -> Command:
    """Add --json, as every command that reads has it."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON; its fields are stable.")(command)


def yes_option(command: Command) -> Command:
    """Add --yes, as every command that destroys has it."""
    return click.option("--yes", is_flag=True, help="Do not ask for confirmation.")(command)


def refuse_no_name(_context: click.Context, _parameter: click.Parameter, queue: str | None) -> str | None:
    """Refuse an empty queue for a publish, as of an unset variable: nobody would look for its messages there."""
    if queue == "":
        raise click.BadParameter(
            "it is empty; name a queue (only programs and `wakeq taskflux enqueue` publish to the default queue)"
        )
    return queue


def queue_name(queue: str) -> str:
    """Return a queue as it is named in a sentence."""
    return f"queue {queue}" if queue else "the default queue"


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is destroyed, unless --yes was passed."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{question} Not a terminal, so I cannot ask; nothing was changed; pass --yes to confirm"
        )
    if not click.confirm(question, default=False, err=True):
        say("nothing was changed")
        raise click.exceptions.Exit(EXIT_FAILED)
