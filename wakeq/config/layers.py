"""Layers: merges the sources of the settings, the later one winning.

    defaults < TOML file (--config, WAKEQ_CONFIG) < environment (WAKEQ_...) < flags  -->  Settings, origins

An unknown name, a wrong type or a value out of range is a BadSettings that names the nearest name or the range; nothing
is ignored.
"""

import dataclasses
import difflib
import re
import socket
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wakeq.config.host_name import AUTO, number_of
from wakeq.config.rules import check_together
from wakeq.config.setting import ENVIRONMENT_PREFIX, as_found
from wakeq.config.settings import KNOWN, Settings, value_of
from wakeq.protocol.errors import BadSettings

BY_ENVIRONMENT_NAME = {known.environment_name: known for known in KNOWN.values()}
SECTIONS = {name[:place] for name in KNOWN for place, char in enumerate(name) if char == "."}
# The command line and clients read these.
NOT_SETTINGS = frozenset(
    {"WAKEQ_CONFIG", "WAKEQ_BROKER", "WAKEQ_HTTP", "WAKEQ_TASKFLUX", "WAKEQ_TOKEN", "WAKEQ_TOKEN_FILE", "WAKEQ_TLS"}
)
# Kubernetes puts these into every container if the name of a service begins with "wakeq".  One of a service called
# "wakeq-http" has the name of a setting, WAKEQ_HTTP_PORT; its value is a URL.
SERVICE_LINK = re.compile(r"WAKEQ_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")
SERVICE_URL = re.compile(r"(tcp|udp|sctp)://.*")

# Values and their origins by name.
Layer = Mapping[str, tuple[object, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The settings, and the origin of each value by name."""

    settings: Settings
    origins: Mapping[str, str]


def load(
    *,
    environment: Mapping[str, str],
    config_file: Path | None = None,
    flags: Mapping[str, object] | None = None,
    host_name: str | None = None,
) -> Loaded:
    """Merge the layers, the later one winning; raise BadSettings for every mistake at once.

    The host is this machine unless it is named.
    """
    if config_file is None and environment.get("WAKEQ_CONFIG"):
        config_file = Path(environment["WAKEQ_CONFIG"])
    layers: list[Layer] = [
        _from_file(config_file) if config_file else {},
        _from_environment(environment),
        {name: (value, "flag") for name, value in (flags or {}).items()},
    ]
    values: dict[str, object] = {}
    origins = dict.fromkeys(KNOWN, "default")
    mistakes = []
    for name, (value, origin) in (item for layer in layers for item in layer.items()):
        try:
            values[name], origins[name] = _checked(name, value, origin), origin
        except BadSettings as mistake:
            mistakes.append(str(mistake))
    if values.get("cluster.node") == AUTO:
        host = socket.gethostname() if host_name is None else host_name
        origins["cluster.node"] += f", {AUTO} at host {host}"
        try:
            values["cluster.node"] = number_of(host)
        except BadSettings as mistake:
            mistakes.append(str(mistake))
    if mistakes:
        # All of them, because an operator would rather not start the broker once for each.
        listed = " ".join(f"({number}) {mistake}" for number, mistake in enumerate(mistakes, 1))
        raise BadSettings(mistakes[0] if len(mistakes) == 1 else f"{len(mistakes)} mistakes: {listed}")
    settings: Settings = _build(Settings, values)
    check_together(settings)
    return Loaded(settings=settings, origins=origins)


def _checked(name: str, value: object, origin: str) -> object:
    if name in KNOWN:
        return KNOWN[name].checked(value, origin)
    if name in SECTIONS:
        raise BadSettings(
            f"{name} is {as_found(value)} ({origin}), but it is a section; write [{name}] and its settings below it"
        )
    names = BY_ENVIRONMENT_NAME if name.startswith(ENVIRONMENT_PREFIX) else KNOWN
    raise BadSettings(f"unknown setting {name} ({origin}); {_nearest(name, names)}")


def reloaded(running: Settings, loaded: Settings) -> tuple[Settings, list[str]]:
    """Return the running settings with new values where a running node can use them, and the names that must wait."""
    waiting = []
    values: dict[str, object] = {}
    for name, known in KNOWN.items():
        old, new = value_of(running, name), value_of(loaded, name)
        values[name] = new if known.reloadable else old
        if new != old and not known.reloadable:
            waiting.append(name)
    settings: Settings = _build(Settings, values)
    return settings, waiting


def _from_file(path: Path) -> Layer:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"cannot read the settings file {path}: {error.strerror}; check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} is not TOML: {error}; correct it") from error
    return {name: (value, f"file {path}") for name, value in _flat(tables)}


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        name = prefix + key
        if not isinstance(value, dict) or (name in KNOWN and KNOWN[name].kind is dict):
            yield name, value
        elif value or name in SECTIONS:
            yield from _flat(value, f"{name}.")
        else:
            yield name, value


def _from_environment(environment: Mapping[str, str]) -> Layer:
    found: dict[str, tuple[object, str]] = {}
    for name, value in environment.items():
        if not name.startswith(ENVIRONMENT_PREFIX) or name in NOT_SETTINGS:
            continue
        if SERVICE_LINK.fullmatch(name) or (name.endswith("_PORT") and SERVICE_URL.fullmatch(value)):
            continue
        if name in BY_ENVIRONMENT_NAME:
            found[BY_ENVIRONMENT_NAME[name].name] = (value, f"environment {name}")
        else:
            # An unknown name keeps its spelling, so that the error shows it.
            found[name] = (value, "environment")
    return found


def _nearest(name: str, names: Iterable[str]) -> str:
    """Suggest a name: the same word in another section, or one that is spelt alike."""
    near = [other for other in names if other.rpartition(".")[2] == name.rpartition(".")[2]]
    near = near or difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else "`wakeq config show` lists all of them"


def _build(model: type[Any], values: Mapping[str, object], prefix: str = "") -> Any:
    arguments: dict[str, object] = {}
    for item in dataclasses.fields(model):
        name = prefix + item.name
        if "section" in item.metadata:
            arguments[item.name] = _build(item.metadata["section"], values, name + ".")
        elif name in values:
            arguments[item.name] = values[name]
    return model(**arguments)
