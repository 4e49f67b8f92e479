"""Settings: everything that an operator may choose, in one typed model.

    defaults < TOML file (--config, WAKEQ_CONFIG) < environment (WAKEQ_...) < flags  -->  Settings, origins

`log.segment_bytes_max` is `[log] segment_bytes_max` in the file and `WAKEQ_LOG_SEGMENT_BYTES_MAX` in the
environment.  Whatever is unknown, of the wrong type or out of range is a BadSettings that names the nearest
name or the range; a value is never bent to fit and never ignored.
"""
# ruff: noqa: RUF009 - the fields are declared by `setting`, which makes a dataclass field of each

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from wakeq.protocol.catalog import Policies
from wakeq.protocol.errors import BadSettings
from wakeq.settings_rules import check_together

KIB = 1024
MIB = 1024 * KIB
TOKENS_NAME = "tokens.json"  # in the data directory
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
SPAN_S_MAX = 31_536_000  # 365 days, the longest delay of the worker protocol (section 2)

ENVIRONMENT_PREFIX = "WAKEQ_"
# Read elsewhere: by the command line, and by clients.
NOT_SETTINGS = frozenset({"WAKEQ_CONFIG", "WAKEQ_BROKER", "WAKEQ_HTTP", "WAKEQ_TOKEN", "WAKEQ_TOKEN_FILE", "WAKEQ_TLS"})
# Kubernetes puts these into every container when a service is called "wakeq".
SERVICE_LINK = re.compile(r"WAKEQ_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP)(_\w+)?)?)")
BYTES = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB|TiB)?")
BYTE_UNITS = {None: 1, "B": 1, "KiB": KIB, "MiB": MIB, "GiB": KIB * MIB, "TiB": MIB * MIB}
TRUTHS = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)


def setting(
    default: object,
    about: str,
    *,
    unit: str = "",
    least: float | None = None,
    most: float | None = None,
    one_of: tuple[str, ...] = (),
    kind: type | None = None,
    reloadable: bool = False,
) -> Any:
    """Declare one setting; what is said here is what the documentation and the checks say.

    `kind` is needed only where the default is None, which means that there is no limit.
    """
    kind = kind or type(default)
    bounds = {"least": least, "most": most, "one_of": one_of}
    return field(
        default=default,
        metadata={"about": about, "unit": unit, "kind": kind, "reloadable": reloadable, **bounds},
    )


def section(kind: type, about: str) -> Any:
    """Declare a group of settings: a table in the file."""
    return field(default_factory=kind, metadata={"about": about, "section": kind})


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedup:
    ids_max: int = setting(
        1_000_000,
        "Publish ids that a queue remembers; beyond it, `id` is refused `BUSY`",
        unit="ids",
        least=0,
    )
    window_s: int = setting(
        900, "How long an id, or an unused session, is remembered", unit="s", least=1, most=SPAN_S_MAX
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    segment_bytes_max: int = setting(64 * MIB, "Size at which a segment of the log is sealed", unit="bytes", least=MIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    keep_s: int = setting(
        604_800,
        "How long what the log no longer needs is kept as history; 0 = not at all",
        unit="s",
        least=0,
        reloadable=True,
    )
    keep_bytes: int = setting(
        2048 * MIB,
        "History is kept up to this size, the newest; 0 = not at all",
        unit="bytes",
        least=0,
        reloadable=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    bytes_min: int = setting(
        64 * MIB,
        "No snapshot before the log has grown by this much (or by the live data, if that is more)",
        unit="bytes",
        least=MIB,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    queues_max: int = setting(
        10_000,
        "Queues, by name, that have metrics of their own; all of them are in the sums",
        unit="queues",
        least=0,
        reloadable=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging:
    format: str = setting(
        "console", "Lines for people, or a JSON object in each", one_of=("console", "json"), reloadable=True
    )
    level: str = setting(
        "info", "The least that is logged", one_of=("debug", "info", "warning", "error"), reloadable=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    flush_after_ms: int = setting(1000, "The longest wait before the store is written", unit="ms", least=1)
    flush_bytes: int = setting(
        16 * MIB, "The store is written earlier once this much waits", unit="bytes", least=64 * KIB
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    backoff: str = setting("fixed", "How the pause grows with each delivery", one_of=("fixed", "exponential"))
    base: float = setting(0.0, "The first pause; 0 = at once", unit="s", least=0, most=SPAN_S_MAX)
    max: float = setting(3600.0, "The longest pause", unit="s", least=0, most=SPAN_S_MAX)
    jitter: float = setting(0.0, "The part of the pause that is drawn at random", least=0, most=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDefaults:
    """The policies of a queue that a publish makes, and of the default queue; the names are those of `CREATE`."""

    max_size: int | None = setting(None, "Messages a queue holds at most", kind=int, unit="messages", least=0)
    max_bytes: int | None = setting(None, "Bytes a queue holds at most", kind=int, unit="bytes", least=0)
    max_message_size: int | None = setting(
        None, "The largest body, within `message_bytes_max`", kind=int, unit="bytes", least=0
    )
    priority_min: int | None = setting(None, "Smallest priority", kind=int, least=INT64_MIN, most=INT64_MAX)
    priority_max: int | None = setting(None, "Largest priority", kind=int, least=INT64_MIN, most=INT64_MAX)
    structure: str = setting(
        "H4", "Priority structure: a heap for any keys, or an array for a small range", one_of=("H4", "QA")
    )
    timeout: int = setting(
        60, "A delivery that is not acknowledged for this long comes back", unit="s", least=5, most=SPAN_S_MAX
    )
    max_deliveries: int = setting(
        0, "After so many failed deliveries a message is a dead letter; 0 = no limit", unit="deliveries", least=0
    )
    dead_letter: str | None = setting(
        None, "The queue for dead letters; unset = `QUEUE.dead`, made on demand", kind=str
    )
    wake: str = setting(
        "ready", "Who is woken: as many sleepers as there are messages, or all", one_of=("ready", "all")
    )
    lease: str = setting(
        "fast", "`strict`: a delivery leaves only once it is committed itself", one_of=("fast", "strict")
    )
    on_disconnect: str = setting(
        "keep",
        "A connection's leases when it ends: kept until they time out, or released",
        one_of=("keep", "release"),
    )
    retry: Retry = section(Retry, "The pause before a message that came back is delivered again.")

    def policies(self) -> Policies:
        """The same as the catalog keeps it."""
        return msgspec.convert(dataclasses.asdict(self), Policies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Auth:
    required: bool = setting(False, "Every client must show a token (`wakeq token create`)")
    tokens_file: Path | None = setting(None, "Where the tokens are; unset = `tokens.json` in `data_dir`", kind=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    cert_file: Path | None = setting(
        None, "Certificate and chain, PEM, that every door shows; unset = no TLS", kind=Path
    )
    key_file: Path | None = setting(None, "The key of that certificate, PEM", kind=Path)
    peer_ca_file: Path | None = setting(
        None, "PEM; nodes of the cluster show each other certificates of this CA; unset = no TLS among them", kind=Path
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    node: int | None = setting(
        None, "Which of `cluster.peers` this node is, from 0; unset = it is alone", kind=int, least=0, most=65535
    )
    peers: str | None = setting(
        None, "HOST:PORT of every node, for the other nodes, with commas between; the same everywhere", kind=str
    )
    join: bool = setting(False, "Come to a cluster that exists; matters only while the data directory is empty")
    worker_address: str | None = setting(
        None, "HOST:PORT to which the other nodes send clients; unset = the host in `cluster.peers`", kind=str
    )
    election_ms: int = setting(
        700, "A leader that is not heard for so long is replaced", unit="ms", least=100, most=60_000
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Monique:
    config_file: Path | None = setting(
        None, "A `config.json` of MoniQue: its ports are opened too, its rules are kept", kind=Path
    )
    id_cookie: bool = setting(False, "Refuse WebSocket clients that have no cookie `id`")
    check_messages: bool = setting(
        True, "Keep from components over ZeroMQ what they would die of; turn it off if messages are encrypted"
    )
    routes: Mapping[str, str] | None = setting(
        None, "Specs whose tasks are kept on a queue, each with its queue", kind=dict
    )
    answers_queue: str = setting("monique.answers", "The queue on which workers put their answers to such tasks")
    creator: str = setting("wakeq", "Who says what is said in the name of such a worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a node is started with.  Every value has been checked."""

    data_dir: Path = setting(Path("wakeq-data"), "Where all that must last is kept; made if missing", kind=Path)
    host: str = setting("127.0.0.1", "Address on which the doors listen")
    worker_port: int = setting(
        2601, "Port of the worker protocol, JSON lines over TCP; 0 = a free one", least=0, most=65535
    )
    http_port: int = setting(8080, "Port of HTTP, and of WebSocket at `/connect`; 0 = a free one", least=0, most=65535)
    taskflux_port: int = setting(2602, "Port of the TaskFlux protocol; 0 = a free one", least=0, most=65535)
    taskflux_dialect: str = setting(
        "spec",
        "What TaskFlux clients of version 1.0 speak on that port; those of 0.1 say so themselves",
        one_of=("spec", "csharp"),
    )
    taskflux_other_port: int | None = setting(
        None, "A second port, for those who speak the other dialect; 0 = a free one", kind=int, least=0, most=65535
    )
    taskflux_idle_s: float = setting(
        60.0, "A TaskFlux connection on which nothing happens for this long is closed", unit="s", least=0.1
    )
    taskflux_payload_bytes_max: int = setting(
        16 * MIB, "The largest payload taken by TaskFlux", unit="bytes", least=1, most=64 * MIB
    )
    message_bytes_max: int = setting(
        MIB, "The largest body taken by the worker protocol", unit="bytes", least=1, most=64 * MIB
    )
    node_bytes_max: int = setting(
        0,
        "No publishes while all queues hold so much, looked at twice a second; 0 = no limit",
        unit="bytes",
        least=0,
        reloadable=True,
    )
    insecure: bool = setting(
        False, "Listen on an address that other machines reach without asking for tokens, or without TLS"
    )
    connections_max: int = setting(16_384, "Connections at all doors; one more is refused", least=1, reloadable=True)
    connections_per_address_max: int = setting(
        4_096,
        "Connections from one address, but for those of this machine; 0 = no limit; it matters only where other "
        "machines can connect",
        least=0,
        reloadable=True,
    )
    buffer_bytes_max: int = setting(
        1024 * MIB,
        "Unfinished commands and unread answers of all connections; beyond it whoever has some is refused",
        unit="bytes",
        least=MIB,
        reloadable=True,
    )
    upgrade: bool = setting(True, "Upgrade a data directory of an older release at start, keeping a copy")
    switch_interval_s: float = setting(
        0.0005, "The interpreter's thread switch interval", unit="s", least=0.00001, most=0.1, reloadable=True
    )
    auth: Auth = section(Auth, "Who may connect, and do what.")
    tls: Tls = section(Tls, "Certificates of all doors; their files are read again on SIGHUP.")
    cluster: Cluster = section(Cluster, "Several nodes that are one broker.")
    dedup: Dedup = section(Dedup, "Publishing the same thing twice.")
    log: Log = section(Log, "The log, which is the truth.")
    journal: Journal = section(Journal, "The journal: what has happened, for `wakeq pipeline`.")
    monique: Monique = section(Monique, "The MoniQue protocol, by WebSocket at `/monique` of the HTTP port.")
    snapshot: Snapshot = section(Snapshot, "Snapshots, behind which the log is cut.")
    metrics: Metrics = section(Metrics, "What `/metrics` says.")
    logging: Logging = section(Logging, "What the broker says on standard error.")
    store: Store = section(Store, "The store, which is written behind the log.")
    queue: QueueDefaults = section(
        QueueDefaults, "Policies of queues that a publish makes, and of the default queue when it is made."
    )

    @property
    def tokens_path(self) -> Path:
        """Where the tokens are."""
        return self.auth.tokens_file or self.data_dir / TOKENS_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One declared setting: its whole name, its type, and what was declared of it."""

    name: str
    kind: type
    default: object
    about: str
    unit: str
    least: float | None
    most: float | None
    one_of: tuple[str, ...]
    reloadable: bool

    @property
    def environment_name(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.replace(".", "_").upper()

    def described(self) -> str:
        """What a right value looks like, for a message."""
        if self.one_of:
            return "one of " + ", ".join(self.one_of)
        if self.kind not in (int, float):
            pairs = "a table of text, or NAME=VALUE pairs with commas between"
            return {bool: "true or false", Path: "a path", dict: pairs}.get(self.kind, "text")
        words = "a number" if self.kind is float else "a whole number"
        words += f" of {self.unit}" if self.unit else ""
        if self.least is not None:
            words += f", at least {self.least}" if self.most is None else f" from {self.least} to {self.most}"
        return words + (", also written as 64MiB" if self.unit == "bytes" else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The settings, and for each name where its value came from."""

    settings: Settings
    origins: Mapping[str, str]


def declared(model: type[Any] = Settings, prefix: str = "") -> Iterator[Known]:
    """Every setting of the model in the order of declaration, the sections behind the plain ones."""
    items = dataclasses.fields(model)
    for item in items:
        if "section" not in item.metadata:
            yield Known(name=prefix + item.name, default=item.default, **item.metadata)
    for item in items:
        if "section" in item.metadata:
            yield from declared(item.metadata["section"], f"{prefix}{item.name}.")


KNOWN = {known.name: known for known in declared()}
BY_ENVIRONMENT_NAME = {known.environment_name: known for known in KNOWN.values()}

Layer = Mapping[str, tuple[object, str]]  # name -> value, origin


def load(
    *,
    environment: Mapping[str, str],
    config_file: Path | None = None,
    flags: Mapping[str, object] | None = None,
) -> Loaded:
    """Lay the layers on each other, the later one winning; raise BadSettings for whatever does not fit."""
    if config_file is None and environment.get("WAKEQ_CONFIG"):
        config_file = Path(environment["WAKEQ_CONFIG"])
    layers: list[Layer] = [
        _from_file(config_file) if config_file else {},
        _from_environment(environment),
        {name: (value, "flag") for name, value in (flags or {}).items()},
    ]
    values: dict[str, object] = {}
    origins = dict.fromkeys(KNOWN, "default")
    for layer in layers:
        for name, (value, origin) in layer.items():
            if name not in KNOWN:
                raise BadSettings(f"unknown setting {name} ({origin}); {_nearest(name, KNOWN)}")
            values[name], origins[name] = _checked(KNOWN[name], value, origin), origin
    settings: Settings = _build(Settings, values)
    check_together(settings)
    return Loaded(settings=settings, origins=origins)


def reloaded(running: Settings, loaded: Settings) -> tuple[Settings, list[str]]:
    """Take of newly loaded settings what a running node can; return also the names that wait for its next start."""
    waiting = []
    values: dict[str, object] = {}
    for name, known in KNOWN.items():
        old, new = value_of(running, name), value_of(loaded, name)
        values[name] = new if known.reloadable else old
        if new != old and not known.reloadable:
            waiting.append(name)
    settings: Settings = _build(Settings, values)
    return settings, waiting


def value_of(settings: Settings, name: str) -> object:
    """The value of `log.segment_bytes_max` and the like."""
    value: object = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def shown(value: object, unit: str = "") -> str:
    """A value as people and TOML write it; whole mebibytes are said in MiB."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return f'"{",".join(f"{name}={text}" for name, text in value.items())}"'
    if unit == "bytes" and isinstance(value, int) and value and value % MIB == 0:
        return f'"{value // MIB}MiB"'
    return f'"{value}"' if isinstance(value, str | Path) else str(value)


def _from_file(path: Path) -> Layer:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"cannot read the settings file {path}: {error.strerror}; check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} is not TOML: {error}; mend that place") from error
    return {name: (value, f"file {path}") for name, value in _flat(tables)}


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        name = prefix + key
        if not isinstance(value, dict) or (name in KNOWN and KNOWN[name].kind is dict):
            yield name, value
        elif value:
            yield from _flat(value, f"{name}.")


def _from_environment(environment: Mapping[str, str]) -> Layer:
    found: dict[str, tuple[object, str]] = {}
    for name, value in environment.items():
        if not name.startswith(ENVIRONMENT_PREFIX) or name in NOT_SETTINGS or SERVICE_LINK.fullmatch(name):
            continue
        if name not in BY_ENVIRONMENT_NAME:
            raise BadSettings(f"unknown setting {name} (environment); {_nearest(name, BY_ENVIRONMENT_NAME)}")
        found[BY_ENVIRONMENT_NAME[name].name] = (value, f"environment {name}")
    return found


def _nearest(name: str, names: Iterable[str]) -> str:
    """Say which name was probably meant: the right word in another section, or one that is spelt alike."""
    near = [other for other in names if other.rpartition(".")[2] == name.rpartition(".")[2]]
    near = near or difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else "`wakeq config show` lists all of them"


def _checked(known: Known, value: object, origin: str) -> object:
    """The value in the setting's type, or BadSettings."""
    fitting = _fitting(known, value)
    if fitting is None:
        raise BadSettings(f"{known.name} is {value!r} ({origin}); it must be {known.described()}")
    return fitting


def _fitting(known: Known, value: object) -> object | None:
    """None if the value is not of the setting's type or beyond its bounds."""
    read = _text_read(known, value.strip()) if isinstance(value, str) else value
    if known.kind is float and isinstance(read, int) and not isinstance(read, bool):
        read = float(read)
    if known.kind is Path:
        return read if isinstance(read, Path) and str(read) else None
    if known.kind is dict:
        return (
            read if isinstance(read, dict) and all(isinstance(text, str) and text for text in read.values()) else None
        )
    if type(read) is not known.kind or (known.one_of and read not in known.one_of):
        return None
    if isinstance(read, int | float) and known.kind is not bool and not _within(known, read):
        return None
    return read


def _text_read(known: Known, text: str) -> object | None:
    """What the text spells.  The environment has nothing but text, and a file may write "64MiB"."""
    if known.kind is bool:
        return TRUTHS.get(text.lower())
    if known.kind is Path:
        return Path(text) if text else None
    if known.kind is str:
        return text
    if known.kind is dict:
        pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
        return {name.strip(): value.strip() for name, _, value in pairs}
    if known.unit == "bytes":
        match = BYTES.fullmatch(text)
        return int(match[1]) * BYTE_UNITS[match[2]] if match else None
    try:
        return float(text) if known.kind is float else int(text)
    except ValueError:
        return None


def _within(known: Known, value: float) -> bool:
    """Whether the bounds allow it; NaN is within no bounds."""
    return (known.least is None or value >= known.least) and (known.most is None or value <= known.most)


def _build(model: type[Any], values: Mapping[str, object], prefix: str = "") -> Any:
    arguments: dict[str, object] = {}
    for item in dataclasses.fields(model):
        name = prefix + item.name
        if "section" in item.metadata:
            arguments[item.name] = _build(item.metadata["section"], values, name + ".")
        elif name in values:
            arguments[item.name] = values[name]
    return model(**arguments)
