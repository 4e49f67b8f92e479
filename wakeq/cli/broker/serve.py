"""`wakeq serve`: reads the settings, runs the node, and ends with its exit status."""

import errno
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from wakeq.config.layers import Loaded, load
from wakeq.config.settings import Settings
from wakeq.protocol.errors import BadSettings, CannotListen, StorageError

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


def settings_options(command: click.decorators.FC) -> click.decorators.FC:
    """Add the flags from which `given_settings` reads the settings."""
    for option in reversed(
        (
            click.option(
                "--config",
                "config_file",
                type=FILE,
                help="A TOML file of settings; default: the one that WAKEQ_CONFIG names, if any.",
            ),
            click.option("--data-dir", type=FILE, help="Where the broker keeps its data."),
            click.option("--host", help="The address to listen on."),
            click.option("--worker-port", type=int, help="Port of the worker protocol; 0: any free one."),
            click.option("--http-port", type=int, help="Port of HTTP and WebSocket; 0: any free one."),
            click.option("--node", "node", type=int, help="Which of --peers this node is, counting from 0."),
            click.option("--peers", help="HOST:PORT of every node of the cluster, separated by commas."),
            click.option("--join", is_flag=True, help="Join a cluster that exists already."),
            click.option("--taskflux-port", type=int, help="Port of the TaskFlux protocol; 0: any free one."),
            click.option("--taskflux-dialect", help="The dialect spoken on that port: spec or csharp."),
            click.option("--auth", is_flag=True, help="Require a token from every client; see `wakeq token`."),
            click.option("--tls-cert", type=FILE, help="The certificate for all ports, PEM."),
            click.option("--tls-key", type=FILE, help="The private key of that certificate, PEM."),
            click.option(
                "--insecure", is_flag=True, help="Allow other machines to connect without tokens, or without TLS."
            ),
            click.option(
                "-f",
                "--config-file",
                "monique_config_file",
                type=FILE,
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

    When it is ready it prints one line with its ports.  The first signal shuts it down in order, a second one at once;
    SIGHUP makes it read settings and certificates again.  All settings: docs/reference/settings.md, or `wakeq config
    show`.
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
