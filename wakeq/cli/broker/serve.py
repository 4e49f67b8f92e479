"""`wakeq serve`, `config`, `doctor` and `alive`: the commands that take the settings of a broker.

file, environment, flags --> settings --> a node, a table, findings, or a request to the broker's HTTP port
"""

import errno
import os
import socket
import ssl
from collections.abc import Sequence
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

import click
import msgspec

from wakeq.cli.common import EXIT_FAILED, json_option
from wakeq.cli.output import print_json, print_table
from wakeq.config.layers import Loaded, load
from wakeq.config.setting import shown
from wakeq.config.settings import KNOWN, Settings, value_of
from wakeq.protocol.errors import BadSettings, BrokerUnreachable, CannotListen, StorageError

# The settings whose flags have other names.
NAMES = {
    "auth": "auth.required",
    "join": "cluster.join",
    "monique_config_file": "monique.config_file",
    "node": "cluster.node",
    "peers": "cluster.peers",
    "tls_cert": "tls.cert_file",
    "tls_key": "tls.key_file",
}
# The code that opens the file reports an unreadable one, with an exit status of its own.
FILE = click.Path(readable=False, path_type=Path)
CANNOT_LISTEN = {errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES}

ANSWER_S_MAX = 2.0
# Addresses at which a broker answers that listens on all addresses.
LOOPBACKS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def settings_options(command: click.decorators.FC) -> click.decorators.FC:
    """Add the flags from which `given_settings` reads the settings."""
    for option in reversed(
        (
            click.option(
                "--config",
                "config_file",
                type=FILE,
                metavar="FILE",
                help="A TOML file of settings; default: the one that WAKEQ_CONFIG names, if any.",
            ),
            click.option("--data-dir", type=FILE, metavar="DIR", help="Where the broker keeps its data."),
            click.option("--host", metavar="HOST", help="The address to listen on."),
            click.option(
                "--worker-port", type=int, metavar="PORT", help="Port of the worker protocol; 0: any free one."
            ),
            click.option("--http-port", type=int, metavar="PORT", help="Port of HTTP and WebSocket; 0: any free one."),
            click.option(
                "--node",
                "node",
                metavar="NUMBER|auto",
                help="The place of this node in --peers, counting from 0; auto: the number that ends its host name.",
            ),
            click.option(
                "--peers", metavar="LIST", help="HOST:PORT of every node of the cluster, separated by commas."
            ),
            click.option("--join", is_flag=True, help="Join a cluster that exists already."),
            click.option(
                "--taskflux-port", type=int, metavar="PORT", help="Port of the TaskFlux protocol; 0: any free one."
            ),
            click.option("--taskflux-dialect", metavar="NAME", help="The dialect spoken on that port: spec or csharp."),
            click.option("--auth", is_flag=True, help="Require a token from every client; see `wakeq token`."),
            click.option("--tls-cert", type=FILE, metavar="FILE", help="The certificate for all ports, PEM."),
            click.option("--tls-key", type=FILE, metavar="FILE", help="The private key of that certificate, PEM."),
            click.option(
                "--insecure", is_flag=True, help="Allow other machines to connect without tokens, or without TLS."
            ),
            click.option(
                "-f",
                "--config-file",
                "monique_config_file",
                type=FILE,
                metavar="FILE",
                help="A MoniQue config.json, whose ports are opened too.",
            ),
            click.option(
                "--no-upgrade",
                is_flag=True,
                help="Refuse a data directory of version 1 instead of importing it.",
            ),
            click.option(
                "--set", "others", metavar="NAME=VALUE", multiple=True, help="Set any other setting; repeatable."
            ),
        )
    ):
        command = option(command)
    return command


def given_settings(*, config_file: Path | None, others: Sequence[str], no_upgrade: bool, **given: object) -> Loaded:
    """Return the settings from file, environment and flags."""
    flags: dict[str, object] = dict(map(_assigned, others))
    flags |= {NAMES.get(name, name): value for name, value in given.items() if value is not None and value is not False}
    if no_upgrade:
        flags["upgrade"] = False
    return load(config_file=config_file, environment=os.environ, flags=flags)


def _assigned(other: str) -> tuple[str, str]:
    name, equals, value = other.partition("=")
    if not equals:
        raise BadSettings(f"--set {other} has no value; write --set NAME=VALUE")
    return name.strip(), value


@click.command()
@settings_options
def serve(**given: Any) -> int:
    """Run a broker in the foreground, until SIGTERM or SIGINT.

    When it is ready it prints one line with its ports, and the address of the dashboard.  The first signal shuts it
    down in order, a second one at once; SIGHUP makes it read settings and certificates again.  All settings:
    docs/reference/settings.md, or `wakeq config show`.
    """
    loaded = given_settings(**given)
    from wakeq.node.service import run

    try:
        return run(loaded.settings, lambda: given_settings(**given).settings)
    except OSError as error:
        raise _explained(error, loaded.settings) from error


def _explained(error: OSError, settings: Settings) -> Exception:
    """Return an error with advice, if the user can do something; else the error itself, which is a bug."""
    if error.filename is not None:
        return StorageError(
            f"{error.filename}: {error.strerror}; check its owner and permissions, or use another --data-dir"
        )
    if error.errno in CANNOT_LISTEN or isinstance(error, socket.gaierror):
        return CannotListen(
            f"cannot listen on {settings.host}, {error.strerror}; "
            f"choose another --host, --worker-port, --http-port or --taskflux-port (0 takes a free one); "
            "the port for the other nodes is in --peers"
        )
    return error


@click.group()
def config() -> None:
    """Show the settings, or check a settings file."""


@config.command()
@settings_options
@click.option("--origin", is_flag=True, help="Also show where each value comes from, its default and its unit.")
@json_option
def show(*, origin: bool, as_json: bool, **given: Any) -> None:
    """Show the settings that `wakeq serve` would use with these flags."""
    loaded = given_settings(**given)
    if as_json:
        print_json({"settings": _as_rows(loaded)})
    elif origin:
        columns = ("name", "value", "origin", "default", "unit", "reload")
        rows = [[row[column] for column in columns] for row in _as_rows(loaded)]
        print_table(columns, rows)
    else:
        print_table(
            ("name", "value"),
            [(name, shown(value_of(loaded.settings, name), known.unit)) for name, known in KNOWN.items()],
        )


@config.command()
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Check a settings FILE, without starting anything.

    The environment is ignored, and this machine's name too: `cluster.node = "auto"` is checked as node 0.
    """
    from wakeq.node.cluster_plan import plan_of

    loaded = load(config_file=file, environment={}, host_name="node-0")
    plan_of(loaded.settings)
    named = sum(origin != "default" for origin in loaded.origins.values())
    click.echo(f"{file}: {named} {'setting' if named == 1 else 'settings'}, all right")


def _as_rows(loaded: Loaded) -> list[dict[str, object]]:
    return [
        {
            "name": name,
            "value": msgspec.to_builtins(value_of(loaded.settings, name), enc_hook=os.fspath),
            "origin": loaded.origins[name],
            "default": msgspec.to_builtins(known.default, enc_hook=os.fspath),
            "unit": known.unit,
            "reload": known.reloadable,
        }
        for name, known in KNOWN.items()
    ]


@click.command()
@settings_options
@json_option
def doctor(*, as_json: bool, **given: Any) -> int:
    """Check this machine before a broker is started on it.

    It checks ports, disk, sync speed, clock, limits and versions, and takes the flags of `wakeq serve`.  Exit status 1
    if something must be fixed first; notes do not count.
    """
    loaded = given_settings(**given)
    from wakeq.node.doctor import examine, is_bad

    findings = list(examine(loaded.settings))
    if as_json:
        print_json({"findings": [finding._asdict() for finding in findings]})
    else:
        print_table(("", "what", "found"), findings)
    return EXIT_FAILED if is_bad(findings) else 0


@click.command()
@settings_options
def alive(**given: Any) -> None:
    """Check that the broker on this machine is alive.

    This is a liveness probe for containers.  It takes the flags of `wakeq serve`, to know where the broker listens.  It
    fails if the broker does not answer within 2 s; a broker that is still reading its log does not listen yet.
    """
    settings = given_settings(**given).settings
    if not settings.http_port:
        raise BadSettings("http_port 0 means a different port at each start; choose a fixed one")
    where = f"{settings.host}:{settings.http_port}"
    try:
        status = _asked(settings)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "strerror", None) or error
        raise BrokerUnreachable(f"no broker answers at {where} ({reason}); see its log") from error
    if status != 200:
        raise BrokerUnreachable(f"{where} answers /livez with status {status}; is that a broker?")
    click.echo("alive")


def _asked(settings: Settings) -> int:
    """Return the HTTP status of /livez.

    It uses no proxy, sends no token, and accepts any name in the certificate: the answer contains no secret.
    """
    host = LOOPBACKS.get(settings.host, settings.host)
    connection = HTTPConnection(host, settings.http_port, timeout=ANSWER_S_MAX)
    if settings.tls.cert_file is not None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = HTTPSConnection(host, settings.http_port, timeout=ANSWER_S_MAX, context=context)
    with closing(connection):
        connection.request("GET", "/livez")
        return connection.getresponse().status
