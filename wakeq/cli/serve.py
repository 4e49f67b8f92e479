"""`wakeq serve`: read the settings, hand them to the node, end with its status."""

import errno
import os
import socket
from pathlib import Path

import click

from wakeq.protocol.errors import BadSettings, StorageError
from wakeq.settings import Settings
from wakeq.settings_layers import Loaded, load

CANNOT_LISTEN = {errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES}


def settings_options(command: click.decorators.FC) -> click.decorators.FC:
    """Add the flags from which settings are read; `given_settings` reads them."""
    for option in reversed(
        (
            click.option(
                "--config",
                "config_file",
                type=click.Path(path_type=Path),
                help="A TOML file of settings; else WAKEQ_CONFIG names it.",
            ),
            click.option("--data-dir", type=click.Path(path_type=Path), help="Where all that must last is kept."),
            click.option("--host", help="Address on which the doors listen."),
            click.option("--worker-port", type=int, help="Port of the worker protocol; 0 takes a free one."),
            click.option("--http-port", type=int, help="Port of HTTP and WebSocket; 0 takes a free one."),
            click.option("--node", "node", type=int, help="Which of --peers this node is, from 0."),
            click.option("--peers", help="HOST:PORT of every node of the cluster, with commas between."),
            click.option("--join", is_flag=True, help="Come to a cluster that exists already."),
            click.option("--taskflux-port", type=int, help="Port of the TaskFlux protocol; 0 takes a free one."),
            click.option("--taskflux-dialect", help="What is spoken on that port: spec or csharp."),
            click.option("--auth", is_flag=True, help="Ask every client for a token; see `wakeq token`."),
            click.option("--tls-cert", type=click.Path(path_type=Path), help="The certificate of all doors, PEM."),
            click.option("--tls-key", type=click.Path(path_type=Path), help="The key of that certificate, PEM."),
            click.option("--insecure", is_flag=True, help="Let other machines in without tokens, or without TLS."),
            click.option(
                "-f",
                "--config-file",
                "monique_config_file",
                type=click.Path(path_type=Path),
                help="A config.json of MoniQue, whose ports are opened too.",
            ),
            click.option("--no-upgrade", is_flag=True, help="Refuse a data directory of an older release."),
            click.option("--set", "others", metavar="NAME=VALUE", multiple=True, help="Any other setting; repeatable."),
        )
    ):
        command = option(command)
    return command


def given_settings(
    *,
    config_file: Path | None,
    data_dir: Path | None,
    host: str | None,
    worker_port: int | None,
    http_port: int | None,
    node: int | None,
    peers: str | None,
    join: bool,
    taskflux_port: int | None,
    taskflux_dialect: str | None,
    auth: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    insecure: bool,
    monique_config_file: Path | None,
    no_upgrade: bool,
    others: tuple[str, ...],
) -> Loaded:
    """The settings as file, environment and flags have them."""
    flags: dict[str, object] = {}
    for other in others:
        name, equals, value = other.partition("=")
        if not equals:
            raise BadSettings(f"--set {other} has no value; write --set NAME=VALUE")
        flags[name.strip()] = value
    named = {
        "data_dir": data_dir,
        "host": host,
        "worker_port": worker_port,
        "http_port": http_port,
        "taskflux_port": taskflux_port,
        "taskflux_dialect": taskflux_dialect,
        "monique.config_file": monique_config_file,
    }
    named |= {"auth.required": auth or None, "insecure": insecure or None}
    named |= {"tls.cert_file": tls_cert, "tls.key_file": tls_key}
    named |= {"cluster.node": node, "cluster.peers": peers, "cluster.join": join or None}
    flags |= {name: value for name, value in named.items() if value is not None}
    if no_upgrade:
        flags["upgrade"] = False
    return load(config_file=config_file, environment=os.environ, flags=flags)


@click.command()
@settings_options
def serve(**given: object) -> int:
    """Run a broker in the foreground until SIGTERM or SIGINT.

    One line is printed when it is ready, with the real ports.  The first signal lets it stop cleanly, a
    second one stops it at once; SIGHUP reads settings and certificates again.  All settings:
    docs/reference/settings.md, or `wakeq config show`.
    """
    loaded = given_settings(**given)  # type: ignore[arg-type]
    from wakeq.service import run

    try:
        return run(loaded.settings, lambda: given_settings(**given).settings)  # type: ignore[arg-type]
    except OSError as error:
        raise _explained(error, loaded.settings) from error


def _explained(error: OSError, settings: Settings) -> Exception:
    """What the user can do about it, if anything; else the error itself, which is a bug."""
    if error.filename is not None:
        return StorageError(
            f"{error.filename}: {error.strerror}; check its owner and rights, or use another --data-dir"
        )
    if error.errno in CANNOT_LISTEN or isinstance(error, socket.gaierror):
        ports = (
            f"ports {settings.worker_port} (worker), {settings.http_port} (HTTP), {settings.taskflux_port} (TaskFlux)"
        )
        return BadSettings(
            f"cannot listen on {settings.host}, {ports}: {error.strerror}; "
            f"give another --host, --worker-port, --http-port or --taskflux-port (0 takes a free one)"
        )
    return error
