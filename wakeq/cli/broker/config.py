"""`wakeq config`: shows the settings and their origin, and checks a settings file."""

import os
from pathlib import Path
from typing import Any

import click
import msgspec

from wakeq.cli.broker.serve import given_settings, settings_options
from wakeq.cli.common import json_option
from wakeq.cli.output import print_json, print_table
from wakeq.config.layers import Loaded, load
from wakeq.config.setting import shown
from wakeq.config.settings import KNOWN, value_of
from wakeq.node.cluster_plan import plan_of


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

    The environment is ignored.
    """
    loaded = load(config_file=file, environment={})
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
