"""Settings: every choice of an operator, in one typed model.

    declarations --> Settings, and KNOWN: each setting by its name

`journal.keep_bytes` is `[journal] keep_bytes` in the file and `WAKEQ_JOURNAL_KEEP_BYTES` in the environment;
`layers.py` merges the sources of the values.
"""
# ruff: noqa: RUF009 - the fields are declared by `setting`, which makes a dataclass field of each

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from wakeq.config.host_name import AUTO
from wakeq.config.setting import MIB, declared, section, setting
from wakeq.protocol.catalog import Policies

TOKENS_NAME = "tokens.json"  # in the data directory
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
SPAN_S_MAX = 31_536_000  # 365 days, the longest delay of the worker protocol (section 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedup:
    ids_max: int = setting(
        1_000_000,
        "Publish ids that a queue remembers; beyond that, a publish with `id` is refused with `BUSY`",
        unit="ids",
        least=0,
    )
    window_s: int = setting(
        900,
        "How long an id, or an unused session, is remembered; below 900, schedules of workers may run twice",
        unit="s",
        least=1,
        most=SPAN_S_MAX,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    keep_s: int = setting(
        604_800,
        "How long old parts of the log are kept as history; 0 = not at all",
        unit="s",
        least=0,
        reloadable=True,
    )
    keep_bytes: int = setting(
        2048 * MIB,
        "The most history to keep; the oldest is removed first; 0 = none",
        unit="bytes",
        least=0,
        reloadable=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    queues_max: int = setting(
        10_000,
        "The most queues, the first by name, that have their own metrics; all queues are in the sums",
        unit="queues",
        least=0,
        reloadable=True,
    )
    histogram_queues_max: int = setting(
        1_000,
        "The most of these queues, the first by name, that have histograms and reasons of failed deliveries; each has "
        "48 lines",
        unit="queues",
        least=0,
        reloadable=True,
    )
    series_queues_max: int = setting(
        1_000,
        "The most queues, the busiest, with charts of their last day, of 28 KiB of memory each: 27 MiB in all, 32 MiB "
        "with the highest value; the node has its charts always",
        unit="queues",
        least=0,
        most=1_150,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging:
    format: str = setting(
        "console", "Plain text, or a JSON object on each line", one_of=("console", "json"), reloadable=True
    )
    level: str = setting(
        "info", "The lowest level that is logged", one_of=("debug", "info", "warning", "error"), reloadable=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    backoff: str = setting("fixed", "Whether the pause doubles with each failure", one_of=("fixed", "exponential"))
    base: float = setting(0.0, "The pause after the first failure; 0 = none", unit="s", least=0, most=SPAN_S_MAX)
    max: float = setting(3600.0, "The longest pause", unit="s", least=0, most=SPAN_S_MAX)
    jitter: float = setting(0.0, "The fraction of the pause that may be subtracted at random", least=0, most=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDefaults:
    """The policies of a queue that a publish creates, and of the default queue; the names are those of `CREATE`."""

    max_size: int | None = setting(None, "The most messages a queue may hold", kind=int, unit="messages", least=0)
    max_bytes: int | None = setting(None, "The most bytes a queue may hold", kind=int, unit="bytes", least=0)
    max_message_size: int | None = setting(
        None, "The largest body, within `message_bytes_max`", kind=int, unit="bytes", least=0
    )
    priority_min: int | None = setting(None, "The lowest priority", kind=int, least=INT64_MIN, most=INT64_MAX)
    priority_max: int | None = setting(None, "The highest priority", kind=int, least=INT64_MIN, most=INT64_MAX)
    structure: str = setting("H4", "How priorities are kept: `H4` for any, `QA` for a small range", one_of=("H4", "QA"))
    timeout: int = setting(
        60, "A message that is not acknowledged within this time is redelivered", unit="s", least=5, most=SPAN_S_MAX
    )
    max_deliveries: int = setting(
        0, "After this many failed deliveries a message becomes a dead letter; 0 = no limit", unit="deliveries", least=0
    )
    dead_letter: str | None = setting(
        None, "The queue for dead letters; unset = `QUEUE.dead`, created on demand", kind=str
    )
    wake: str = setting(
        "sleeper",
        "Which sleepers a message wakes: as many as there are messages (`ready`), `all`, or as each asked (`sleeper`)",
        one_of=("sleeper", "ready", "all"),
    )
    lease: str = setting(
        "fast", "`strict`: a delivery is sent only once its record is on disk", one_of=("fast", "strict")
    )
    on_disconnect: str = setting(
        "keep",
        "What happens to a connection's leases when it ends: kept until they time out, or released",
        one_of=("keep", "release"),
    )
    retry: Retry = section(Retry, "The pause before a failed message is delivered again.")

    def policies(self) -> Policies:
        """Return these defaults as the catalog stores them."""
        return msgspec.convert(dataclasses.asdict(self), Policies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Auth:
    required: bool = setting(False, "Every client must have a token (`wakeq token create`)")
    tokens_file: Path | None = setting(None, "Where the tokens are; unset = `tokens.json` in `data_dir`", kind=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    cert_file: Path | None = setting(None, "Certificate and chain for all ports, PEM; unset = no TLS", kind=Path)
    key_file: Path | None = setting(None, "The private key of that certificate, PEM", kind=Path)
    peer_ca_file: Path | None = setting(
        None,
        "The authority that must have signed the nodes' certificates, PEM; unset = no TLS between nodes",
        kind=Path,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    node: int | None = setting(
        None,
        "The place of this node in `cluster.peers`, counting from 0; `auto` = the number at the end of its host name "
        "(`wakeq-0` is node 0); unset = a single broker",
        kind=int,
        word=AUTO,
        least=0,
        most=65535,
    )
    peers: str | None = setting(
        None,
        "HOST:PORT by which the nodes reach each other, separated by commas; the same list on every node",
        kind=str,
    )
    join: bool = setting(False, "Join a cluster that exists; matters only while the data directory is empty")
    secret_file: Path | None = setting(
        None,
        "A text of 32 bytes or more with which the nodes prove their identity, the same on every node "
        "(`wakeq cluster secret`); needed with tokens, and between machines, unless the nodes use TLS",
        kind=Path,
    )
    worker_address: str | None = setting(
        None, "HOST:PORT to which the other nodes send clients; unset = the host in `cluster.peers`", kind=str
    )
    election_ms: int = setting(
        700,
        "A leader that is silent for this long is replaced; a round trip between nodes must take less than a third",
        unit="ms",
        least=100,
        most=60_000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Monique:
    config_file: Path | None = setting(
        None, "A MoniQue `config.json`: its ports are opened too, and its rules are followed", kind=Path
    )
    id_cookie: bool = setting(False, "Refuse WebSocket clients that have no cookie `id`")
    check_messages: bool = setting(
        True, "Refuse messages that components over ZeroMQ could not unpack; turn it off if messages are encrypted"
    )
    routes: Mapping[str, str] | None = setting(
        None, "Specs whose tasks are stored on a queue, and the queue of each", kind=dict
    )
    creator: str = setting("wakeq", "The creator named in answers of workers that name none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a node; every value has been checked."""

    data_dir: Path = setting(Path("wakeq-data"), "Where the broker keeps its data; created if missing", kind=Path)
    host: str = setting("127.0.0.1", "The address to listen on")
    worker_port: int = setting(
        2601, "Port of the worker protocol, JSON lines over TCP; 0 = any free one", least=0, most=65535
    )
    http_port: int = setting(
        8080, "Port of HTTP, and of WebSocket at `/connect`; 0 = any free one", least=0, most=65535
    )
    taskflux_port: int = setting(2602, "Port of the TaskFlux protocol; 0 = any free one", least=0, most=65535)
    taskflux_dialect: str = setting(
        "spec",
        "The dialect of TaskFlux clients of version 1.0 on that port; those of 0.1 are recognised",
        one_of=("spec", "csharp"),
    )
    taskflux_other_port: int | None = setting(
        None, "A second port for clients of the other dialect; 0 = any free one", kind=int, least=0, most=65535
    )
    taskflux_idle_s: float = setting(
        60.0, "A TaskFlux connection that is idle for this long is closed", unit="s", least=0.1
    )
    taskflux_payload_bytes_max: int = setting(
        16 * MIB, "The largest payload accepted over TaskFlux", unit="bytes", least=1, most=64 * MIB
    )
    message_bytes_max: int = setting(
        MIB, "The largest body accepted over the worker protocol", unit="bytes", least=1, most=64 * MIB
    )
    node_bytes_max: int = setting(
        0,
        "Publishes are refused while all queues together hold this much, checked twice a second; 0 = no limit",
        unit="bytes",
        least=0,
        reloadable=True,
    )
    queues_max: int = setting(
        100_000,
        "With this many queues only dead letters create another, checked twice a second; 0 = no limit",
        least=0,
        reloadable=True,
    )
    queues_per_token_max: int = setting(
        10_000,
        "The most existing queues that the clients of one token have created by publishing since the node started; "
        "0 = no limit",
        least=0,
    )
    insecure: bool = setting(False, "Allow other machines to connect without tokens, or without TLS")
    connections_max: int = setting(
        16_384, "The most connections on all ports; one more is refused", least=1, reloadable=True
    )
    connections_per_address_max: int = setting(
        4_096,
        "The most connections from one address, except from this machine; 0 = no limit; it matters only where other "
        "machines can connect",
        least=0,
        reloadable=True,
    )
    buffer_bytes_max: int = setting(
        1024 * MIB,
        "The most unfinished commands and unread answers of all connections; then connections with some are refused",
        unit="bytes",
        least=MIB,
        reloadable=True,
    )
    upgrade: bool = setting(True, "Import files of version 1 in the data directory at start, keeping them")
    auth: Auth = section(Auth, "Who may connect, and what they may do.")
    tls: Tls = section(Tls, "Certificates for all ports; their files are read again on SIGHUP.")
    cluster: Cluster = section(Cluster, "Several nodes that form one broker.")
    dedup: Dedup = section(Dedup, "Publishing the same thing twice.")
    journal: Journal = section(Journal, "The journal: what has happened, for `wakeq pipeline`.")
    monique: Monique = section(Monique, "The MoniQue protocol, over WebSocket at `/monique` of the HTTP port.")
    metrics: Metrics = section(Metrics, "What `/metrics` shows.")
    logging: Logging = section(Logging, "What the broker logs to standard error.")
    queue: QueueDefaults = section(
        QueueDefaults, "Policies of queues that a publish creates, and of the default queue when it is created."
    )

    @property
    def tokens_path(self) -> Path:
        """The path of the token file."""
        return self.auth.tokens_file or self.data_dir / TOKENS_NAME


KNOWN = {known.name: known for known in declared(Settings)}


def value_of(settings: Settings, name: str) -> object:
    """Return the value of `journal.keep_bytes` and the like."""
    value: object = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value
