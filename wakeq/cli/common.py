"""What the verbs share: where the broker is, the question before destruction, the exit statuses."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wakeq.cli import EXIT_INTERRUPTED as EXIT_INTERRUPTED  # it is needed before anything else is loaded
from wakeq.cli.output import say
from wakeq.client import Client
from wakeq.client.core.route import PORT, parse_address
from wakeq.config.setting import parse_bytes

if TYPE_CHECKING:
    from wakeq.client.admin import AdminClient

TIMEOUTS = ("connect_timeout_s", "answer_timeout_s", "reconnect_for_s")
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOTHING = 3  # there was no message to fetch, or not the one that was named
EXIT_BROKEN_PIPE = 141

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Broker:
    """Where the verbs find the broker."""

    address: str
    http: str | None = None

    def admin(self) -> "AdminClient":
        """Where operators talk to it, over HTTP."""
        from wakeq.client.admin import AdminClient

        return AdminClient(self.http_address)

    @property
    def addresses(self) -> list[str]:
        """The nodes that are named, one by one."""
        return [one.strip() for one in self.address.split(",") if one.strip()]

    @property
    def http_address(self) -> str:
        """The HTTP ports of this broker, never of another one: the usual one where its worker port is the usual one."""
        from wakeq.client.admin import HTTP_PORT

        if self.http:
            return self.http
        nodes = [parse_address(one) for one in self.addresses]
        hosts = [f"[{host}]" if ":" in host else host for host, port in nodes if port == PORT]
        if not hosts:
            raise click.UsageError(
                f"the HTTP port of {self.address} is not known; give --http {nodes[0][0]}:PORT, or set WAKEQ_HTTP"
            )
        return ",".join(f"{host}:{HTTP_PORT}" for host in hosts)

    @contextmanager
    def connect(self, *, within_s: float | None = None) -> Iterator[Client]:
        """Talk to it, and with `within_s` wait no longer for each thing than that."""
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


def json_option(command: Command) -> Command:
    """Add --json, which every verb that reads has."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON; its fields are stable.")(command)


def yes_option(command: Command) -> Command:
    """Add --yes, which every verb that destroys has."""
    return click.option("--yes", is_flag=True, help="Do not ask for confirmation.")(command)


def queue_name(queue: str) -> str:
    """A queue as a sentence names it."""
    return f"queue {queue}" if queue else "the default queue"


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is destroyed; `--yes` has answered already."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{question} Not a terminal, so I cannot ask; nothing was changed; pass --yes to confirm"
        )
    if not click.confirm(question, default=False, err=True):
        say("nothing was changed")
        raise click.exceptions.Exit(EXIT_FAILED)
