"""The options of the data source `wakeq`, checked, and the connection to the broker that they name.

strings from Spark --> ReadOptions, WriteOptions; or BadSettings in one line address --> client_of --> BulkClient
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from wakeq.client.bulk import BulkClient
from wakeq.client.route import default_address
from wakeq.protocol.errors import BadSettings
from wakeq.protocol.wire.worker.commands import BLOCK_ROWS_MAX, KEEP_S_MAX, SLICES_MAX, TIMEOUT_S_MIN

MESSAGES_A_TRIGGER = 10_000
# Each Python task costs about 35 ms.
SLICES_DEFAULT_MAX = 4
CLAIM_S = 300
# Hours may pass from the first stash of a job to its end.
STASH_S = 6 * 3_600
TRUTHS = {"true": True, "false": False}
# In lower case, as Spark passes names on; a second name is that of Kafka's option.
ALIASES = {"maxmessagespertrigger": "maxoffsetspertrigger"}
READS = ("broker", "queue", "maxOffsetsPerTrigger", "minPartitions", "includeHeaders", "includeState", "failOnDataLoss",
         "timeout", "pollInterval", "source")  # fmt: skip
WRITES = ("broker", "queue", "writer", "epoch", "keep", "checkpointLocation", "delay", "expires", "priority")

_clients: dict[tuple[int, str], BulkClient] = {}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read a queue."""

    broker: str
    queue: str
    # For one trigger.
    messages_max: int
    partitions: int
    has_headers: bool
    has_state: bool
    # If false, messages of an expired epoch are left to a later one.
    fails_on_data_loss: bool
    # Of a claim that is not renewed.
    timeout_s: int
    # The pause after an attempt that found nothing.
    poll_s: float
    # The name under which a stream claims; empty for a new one.
    source: str


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How to publish a data frame."""

    broker: str
    queue: str
    # Empty for a new one for each job, or for the name of the query.
    writer: str
    # 0 if it was not given.
    epoch: int
    keep_s: int
    checkpoint: str
    delay: int
    expires: int
    priority: int


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options of a read; refuse unknown or impossible ones."""
    options = _known(given, READS)
    return ReadOptions(
        broker=options.get("broker") or default_address(),
        queue=_queue(options),
        messages_max=_number(options, "maxOffsetsPerTrigger", MESSAGES_A_TRIGGER, most=BLOCK_ROWS_MAX),
        partitions=_number(options, "minPartitions", min(os.cpu_count() or 1, SLICES_DEFAULT_MAX), most=SLICES_MAX),
        has_headers=_truth(options, "includeHeaders", default=False),
        has_state=_truth(options, "includeState", default=False),
        fails_on_data_loss=_truth(options, "failOnDataLoss", default=True),
        timeout_s=_number(options, "timeout", CLAIM_S, least=TIMEOUT_S_MIN, most=KEEP_S_MAX),
        poll_s=_number(options, "pollInterval", 100, most=60_000) / 1000,
        source=options.get("source", ""),
    )


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Return the options of a write; refuse unknown or impossible ones."""
    options = _known(given, WRITES)
    return WriteOptions(
        broker=options.get("broker") or default_address(),
        queue=_queue(options),
        writer=options.get("writer", ""),
        epoch=_number(options, "epoch", 0),
        keep_s=_number(options, "keep", STASH_S, least=TIMEOUT_S_MIN, most=KEEP_S_MAX),
        checkpoint=options.get("checkpointlocation", ""),
        delay=_number(options, "delay", 0, least=0),
        expires=_number(options, "expires", 0, least=0),
        priority=_number(options, "priority", 0, least=-(2**63)),
    )


def _known(given: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    options = {ALIASES.get(name.lower(), name.lower()): value for name, value in given.items()}
    known = {name.lower() for name in names}
    for name in given:
        if ALIASES.get(name.lower(), name.lower()) not in known and name.lower() != "path":
            raise BadSettings(f"unknown option {name}; wakeq knows {', '.join(names)}")
    return options


def _queue(options: Mapping[str, str]) -> str:
    name = options.get("queue", options.get("path"))
    if name is None:
        raise BadSettings('no queue is given: add .option("queue", NAME)')
    return name


def _number(options: Mapping[str, str], name: str, default: int, *, least: int = 1, most: int = 2**63 - 1) -> int:
    text = options.get(name.lower())
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise BadSettings(f"option {name} is {text!r}; it must be a whole number from {least} to {most}")
    return number


def _truth(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name.lower())
    if text is None:
        return default
    truth = TRUTHS.get(text.lower())
    if truth is None:
        raise BadSettings(f"option {name} is {text!r}; it must be true or false")
    return truth


def client_of(address: str) -> BulkClient:
    """Return this process's client of a broker.

    Spark reuses its Python workers, so each keeps one connection for each address. A worker that was forked makes its
    own.
    """
    key = os.getpid(), address
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = BulkClient(address)
    return client
