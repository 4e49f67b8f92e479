"""`wakeq serve`: read the settings, hand them to the node, end with its status."""

import os
from pathlib import Path

import click

from wakeq.protocol.errors import BadSettings
from wakeq.settings import Loaded, load


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
    named = {"data_dir": data_dir, "host": host, "worker_port": worker_port, "http_port": http_port}
    flags |= {name: value for name, value in named.items() if value is not None}
    if no_upgrade:
        flags["upgrade"] = False
    return load(config_file=config_file, environment=os.environ, flags=flags)


@click.command()
@settings_options
def serve(**given: object) -> int:
    """Run a broker in the foreground until SIGTERM or SIGINT.

    One line is printed when it is ready, with the real ports.  The first signal lets it stop cleanly, a
    second one stops it at once.  All settings: docs/reference/settings.md, or `wakeq config show`.
    """
    loaded = given_settings(**given)  # type: ignore[arg-type]
    from wakeq.node import run

    status: int = run(loaded.settings)
    return status
