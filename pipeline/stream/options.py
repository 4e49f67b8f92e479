"""The options of the data source `wakeq`, checked.

strings from Spark --> ReadOptions, WriteOptions; or BadSettings in one line
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from wakeq.client.connection import SYSTEM
from wakeq.client.route import default_address
from wakeq.pipeline.options import known_options, number, truth
from wakeq.pipeline.stream.broker import SWITCHES, Broker
from wakeq.pipeline.stream.columns import ON_DEMAND, READABLE, check_readable
from wakeq.protocol.errors import BadSettings
from wakeq.protocol.names import check_name
from wakeq.protocol.wire.worker.commands import BLOCK_ROWS_MAX, KEEP_S_MAX, SLICES_MAX, TIMEOUT_S_MIN

MESSAGES_A_TRIGGER = 10_000
# The longest claim: a query may be away for a night, and comes back with its batch.
CLAIM_S = KEEP_S_MAX
# Without a checkpoint nobody knows the claim but the program that made it.
NAMED_CLAIM_S = 300
# Hours may pass from the first stash of a job to its end.
STASH_S = 6 * 3_600
# How long a stream waits for a broker that is away.
RECONNECT_S = 120
TRIGGER_DELAY_S = 15 * 60
SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600}
BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
# Names of Kafka's options, in lower case.
ALIASES = {"maxoffsetspertrigger": "maxmessagespertrigger", "minoffsetspertrigger": "minmessagespertrigger"}
BOTH = ("broker", "queue", "token", "tokenFile", "tls", "reconnectFor")
READS = (*BOTH, "maxMessagesPerTrigger", "maxBytesPerTrigger", "minMessagesPerTrigger", "maxTriggerDelay",
         "minPartitions", "columns", "includeBody", "includeHeaders", "includeState", "failOnDataLoss",
         "failOnMissingQueue", "timeout", "pollInterval", "source")  # fmt: skip
WRITES = (*BOTH, "writer", "epoch", "keep", "delay", "expires", "priority")
# Spark passes these on; the sink has no use for the last two.
UNNAMED = ("path", "checkpointlocation", "queryname")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read a queue."""

    broker: Broker
    queue: str
    # For one trigger.
    messages_max: int
    # The same in bytes, by the mean size of the queue's messages; 0: no limit.
    bytes_max: int
    # A trigger waits for so many messages, but no longer than the delay.
    messages_min: int
    delay_s: int
    # 0: as many as Spark runs at the same time.
    partitions: int
    columns: tuple[str, ...]
    # If false, messages of an expired epoch are left to a later one.
    fails_on_data_loss: bool
    # If false, a stream waits for its queue; None: unless it ends by itself.
    fails_on_missing_queue: bool | None
    # Of a claim that is not renewed.
    timeout_s: int
    # The pause after an attempt that found nothing.
    poll_s: float
    # The name under which a stream claims; empty for a new one.
    source: str


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How to publish a data frame."""

    broker: Broker
    queue: str
    # Empty for a new one for each job, or for the name of the query.
    writer: str
    # 0 if it was not given.
    epoch: int
    keep_s: int
    delay: int
    expires: int
    priority: int


def read_options(given: Mapping[str, str], *, is_stream: bool = False) -> ReadOptions:
    """Return the options of a read; refuse unknown or impossible ones."""
    options = known_options(given, READS, source="wakeq", aliases=ALIASES, unnamed=UNNAMED)
    source = options.get("source", "")
    return ReadOptions(
        broker=broker_of(options, is_stream=is_stream),
        queue=_queue(options),
        messages_max=number(options, "maxMessagesPerTrigger", MESSAGES_A_TRIGGER, most=BLOCK_ROWS_MAX),
        bytes_max=_amount(options, "maxBytesPerTrigger", 0, BYTES, "10m"),
        messages_min=number(options, "minMessagesPerTrigger", 0, least=0),
        delay_s=_amount(options, "maxTriggerDelay", TRIGGER_DELAY_S, SECONDS, "15m"),
        partitions=number(options, "minPartitions", 0, most=SLICES_MAX),
        columns=_columns(options),
        fails_on_data_loss=truth(options, "failOnDataLoss", default=True),
        fails_on_missing_queue=_truth_or_none(options, "failOnMissingQueue"),
        timeout_s=number(
            options, "timeout", NAMED_CLAIM_S if source else CLAIM_S, least=TIMEOUT_S_MIN, most=KEEP_S_MAX
        ),
        poll_s=number(options, "pollInterval", 100, most=60_000) / 1000,
        source=source,
    )


def write_options(given: Mapping[str, str], *, is_stream: bool = False) -> WriteOptions:
    """Return the options of a write; refuse unknown or impossible ones."""
    options = known_options(given, WRITES, source="wakeq", aliases=ALIASES, unnamed=UNNAMED)
    return WriteOptions(
        broker=broker_of(options, is_stream=is_stream),
        queue=_queue(options),
        writer=options.get("writer", ""),
        epoch=number(options, "epoch", 0),
        keep_s=number(options, "keep", STASH_S, least=TIMEOUT_S_MIN, most=KEEP_S_MAX),
        delay=number(options, "delay", 0, least=0),
        expires=number(options, "expires", 0, least=0),
        priority=number(options, "priority", 0, least=-(2**63)),
    )


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    named = options.get("columns")
    names = [name for name in READABLE if name not in ON_DEMAND]
    if named is not None:
        names = [name.strip() for name in named.split(",") if name.strip()]
    for column in ON_DEMAND:
        if truth(options, f"include{column.capitalize()}", default=False) and column not in names:
            names.append(column)
    if not truth(options, "includeBody", default=True):
        names = [name for name in names if name != "body"]
    return check_readable({name: READABLE.get(name, "") for name in names})


def broker_of(options: Mapping[str, str], *, is_stream: bool) -> Broker:
    """Return the broker that options, by their names in lower case, lead to."""
    token_file, tls = options.get("tokenfile", ""), options.get("tls", "")
    return Broker(
        address=options.get("broker") or default_address(),
        token=options.get("token", ""),
        # Executors have working directories of their own.
        token_file=os.path.abspath(token_file) if token_file else "",
        tls=tls if tls.lower() in (*SWITCHES, SYSTEM) else os.path.abspath(tls),
        reconnect_s=_amount(options, "reconnectFor", RECONNECT_S if is_stream else 0, SECONDS, "2m"),
    )


def _truth_or_none(options: Mapping[str, str], name: str) -> bool | None:
    return truth(options, name, default=False) if name.lower() in options else None


def _queue(options: Mapping[str, str]) -> str:
    name = options.get("queue", options.get("path"))
    if name is None:
        raise BadSettings('no queue is given: add .option("queue", NAME)')
    return check_name(name)


def _amount(options: Mapping[str, str], name: str, default: int, units: Mapping[str, int], example: str) -> int:
    text = options.get(name.lower())
    if text is None:
        return default
    found = re.fullmatch(r"([0-9]{1,15})\s*([a-z]?)", text.strip().lower())
    if found is None or found[2] not in units:
        raise BadSettings(
            f"option {name} is {text!r}; write it like {example} (units: {', '.join(filter(None, units))})"
        )
    return int(found[1]) * units[found[2]]
