"""Settings: everything that an operator may choose, in one typed model.

    declarations --> Settings, and KNOWN: each setting by its name

`log.segment_bytes_max` is `[log] segment_bytes_max` in the file and `WAKEQ_LOG_SEGMENT_BYTES_MAX` in the environment;
where values come from is the matter of `settings_layers.py`.
"""
# ruff: noqa: RUF009 - the fields are declared by `setting`, which makes a dataclass field of each

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from wakeq.protocol.catalog import Policies
from wakeq.setting import KIB, MIB, declared, section, setting

TOKENS_NAME = "tokens.json"  # in the data directory
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
SPAN_S_MAX = 31_536_000  # 365 days, the longest delay of the worker protocol (section 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedup:
    ids_max: int = setting(
        1_000_000,
        "Publish ids that a queue remembers; beyond it, `id` is refused `BUSY`",
        unit="ids",
        least=0,
    )
    window_s: int = setting(
        900,
        "How long an id, or an unused session, is remembered; below 900, schedules of workers may come twice",
        unit="s",
        least=1,
        most=SPAN_S_MAX,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    segment_bytes_max: int = setting(64 * MIB, "Size at which the log begins a new segment", unit="bytes", least=MIB)


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


KNOWN = {known.name: known for known in declared(Settings)}


def value_of(settings: Settings, name: str) -> object:
    """Return the value of `log.segment_bytes_max` and the like."""
    value: object = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value
