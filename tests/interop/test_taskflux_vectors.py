"""The golden packets of TaskFlux: every one is written and read as it stands in tests/vectors, in its dialect."""

import json
from pathlib import Path
from typing import Any

import pytest

from wakeq.protocol.wire.taskflux.codec import RequestReader, ResponseReader, encode
from wakeq.protocol.wire.taskflux.commands import (
    METHOD_NONE,
    Ack,
    AuthorizationRequest,
    AuthorizationResponse,
    BootstrapRequest,
    BootstrapResponse,
    BusinessError,
    ClusterMetadataRequest,
    ClusterMetadataResponse,
    Count,
    CountResponse,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    Empty,
    Enqueue,
    EnqueueResponse,
    ErrorCode,
    ErrorResponse,
    GeneralViolation,
    KeyRangeViolation,
    ListQueues,
    ListQueuesResponse,
    Nack,
    NotLeader,
    Ok,
    Packet,
    PayloadSizeViolation,
    QueueInfo,
    QueueSizeViolation,
    Record,
)
from wakeq.protocol.wire.taskflux.dialects import DIALECTS, LEGACY, Dialect

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "taskflux_packets.json").read_text())["vectors"]
FROM_CLIENT = [vector for vector in VECTORS if vector["direction"] == "client->server"]
FROM_SERVER = [vector for vector in VECTORS if vector["direction"] == "server->client"]

CSHARP_CODES = {
    0: ErrorCode.UNKNOWN, 1: ErrorCode.BAD_NAME, 2: ErrorCode.NO_QUEUE, 3: ErrorCode.QUEUE_EXISTS,
    4: ErrorCode.BAD_KEY_RANGE, 5: ErrorCode.BAD_QUEUE_SIZE, 6: ErrorCode.BAD_PAYLOAD_SIZE,
    7: ErrorCode.NO_KEY_RANGE, 8: ErrorCode.BAD_IMPLEMENTATION,
}  # fmt: skip


def name_of(vector: dict[str, Any]) -> str:
    return f"{vector['dialect']}-{vector['name']}"


def packet_of(fields: dict[str, Any], dialect: str) -> Packet:
    """Return the packet that a vector describes."""
    match fields["packet"]:
        case "AuthorizationRequest":
            assert fields["method"] == "none"
            return AuthorizationRequest(METHOD_NONE)
        case "AuthorizationResponse":
            return AuthorizationResponse(fields["success"], fields.get("reason", ""))
        case "BootstrapRequest":
            return BootstrapRequest(fields["major"], fields["minor"], fields["patch"])
        case "BootstrapResponse":
            return BootstrapResponse(fields["success"], fields.get("reason", ""))
        case "Acknowledge":
            return Ack()
        case "NegativeAcknowledge":
            return Nack()
        case "Ok":
            return Ok()
        case "ErrorResponse":
            return ErrorResponse(fields.get("code", 0), fields["message"])
        case "NotLeader":
            return NotLeader(fields["leader_id"])
        case "ClusterMetadataRequest":
            return ClusterMetadataRequest()
        case "ClusterMetadataResponse":
            return ClusterMetadataResponse(tuple(fields["addresses"]), fields["leader_id"], fields["responding_id"])
        case "CommandRequest":
            return command_of(fields)
        case "CommandResponse":
            return response_of(fields, dialect)
    raise AssertionError(f"no such packet: {fields}")


def command_of(fields: dict[str, Any]) -> Packet:
    match fields["command"]:
        case "Enqueue":
            return Enqueue(fields["queue"], int(fields["key"]), bytes.fromhex(fields["payload_hex"]))
        case "Dequeue":
            return Dequeue(fields["queue"], fields.get("timeout_ms", 0))
        case "Count":
            return Count(fields["queue"])
        case "CreateQueue":
            key_range = fields["priority_range"]
            return CreateQueue(
                fields["queue"],
                fields["implementation"],
                fields["max_queue_size"],
                fields["max_payload_size"],
                None if key_range is None else (int(key_range[0]), int(key_range[1])),
            )
        case "DeleteQueue":
            return DeleteQueue(fields["queue"])
        case "ListQueues":
            return ListQueues()
    raise AssertionError(f"no such command: {fields}")


def response_of(fields: dict[str, Any], dialect: str) -> Packet:
    match fields["response"]:
        case "Enqueue":
            return EnqueueResponse(fields["success"])
        case "Dequeue" if not fields["success"]:
            return Empty()
        case "Dequeue":
            number = int(fields.get("record_id", 0))
            return Record(int(fields["key"]), bytes.fromhex(fields["payload_hex"]), number)
        case "Count":
            return CountResponse(fields["count"])
        case "Error":
            codes: Any = CSHARP_CODES if dialect == "csharp" else ErrorCode
            code = codes[fields["code"]] if dialect == "csharp" else codes(fields["code"])
            return BusinessError(code, fields["details"])
        case "PolicyViolation":
            return violation_of(fields)
        case "ListQueues":
            return ListQueuesResponse(
                tuple(
                    QueueInfo(queue["queue"], queue["count"], tuple((key, value) for key, value in queue["policies"]))
                    for queue in fields["queues"]
                )
            )
    raise AssertionError(f"no such response: {fields}")


def violation_of(fields: dict[str, Any]) -> Packet:
    match fields["policy"]:
        case "generic":
            return GeneralViolation(fields["message"])
        case "max_queue_size":
            return QueueSizeViolation(fields["value"])
        case "max_payload_size":
            return PayloadSizeViolation(fields["value"])
        case "key_range":
            return KeyRangeViolation(int(fields["min"]), int(fields["max"]))
    raise AssertionError(f"no such policy: {fields}")


def ready_reader(dialect: Dialect) -> RequestReader:
    """Return a server's reader behind the handshake."""
    reader = RequestReader(dialect)
    version = BootstrapRequest(0, 1, 0) if dialect is LEGACY else BootstrapRequest(1, 0, 0)
    assert len(reader.receive(encode([AuthorizationRequest(), version], dialect))) == 2
    return reader


def test_vectors_are_complete() -> None:
    assert len(VECTORS) == 211


@pytest.mark.parametrize("vector", VECTORS, ids=name_of)
def test_golden_packet_is_written_byte_by_byte(vector: dict[str, Any]) -> None:
    dialect = DIALECTS[vector["dialect"]]

    written = encode([packet_of(vector["fields"], dialect.name)], dialect)

    assert written.hex() == vector["hex"]


@pytest.mark.parametrize("vector", FROM_SERVER, ids=name_of)
def test_golden_server_packet_is_read(vector: dict[str, Any]) -> None:
    dialect = DIALECTS[vector["dialect"]]

    packets = ResponseReader(dialect).receive(bytes.fromhex(vector["hex"]))

    assert packets == [packet_of(vector["fields"], dialect.name)]


@pytest.mark.parametrize("vector", FROM_CLIENT, ids=name_of)
def test_golden_client_packet_is_read(vector: dict[str, Any]) -> None:
    dialect = DIALECTS[vector["dialect"]]
    expected = packet_of(vector["fields"], dialect.name)
    match expected:
        case AuthorizationRequest():
            reader = RequestReader(dialect)
        case BootstrapRequest():
            reader = RequestReader(dialect)
            reader.receive(encode([AuthorizationRequest()], dialect))
        case _:
            reader = ready_reader(dialect)

    packets = reader.receive(bytes.fromhex(vector["hex"]))

    assert packets == [expected]
