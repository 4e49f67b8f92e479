"""WebSocket: the client's side of one connection, without a socket; the package `websockets` knows RFC 6455.

    address, headers --> request in bytes_to_send       receive <-- bytes --> messages, once the handshake is accepted

The package finds the faults of the server; this file turns them into errors of wakeq. The client asks for no extension.
Pings are answered automatically; the answers are in `bytes_to_send`. Only a client loads this file, so `import
wakeq.monique` works without the package.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from wakeq.client.session import NotReady, WrongProtocol
from wakeq.protocol.errors import (
    BadSettings,
    BrokerUnreachable,
    Disconnected,
    Forbidden,
    NotInstalled,
    Unauthorized,
    WakeqError,
)
from wakeq.protocol.wire.monique.codec import FRAME_BYTES_MAX

try:
    from websockets.client import ClientProtocol
    from websockets.exceptions import InvalidMessage, InvalidStatus, InvalidURI, SecurityError
    from websockets.frames import DATA_OPCODES, Close, CloseCode, Frame, Opcode
    from websockets.http11 import Response
    from websockets.protocol import State
    from websockets.uri import parse_uri
except ImportError as error:
    raise NotInstalled("a MoniQue client needs the package websockets; pip install 'wakeq[monique]'") from error

# How much is shown of the reason for which a server refuses the handshake.
SHOWN_CHARS_MAX = 200
DENIALS = {kind.code: kind for kind in (Unauthorized, Forbidden)}

logger = logging.getLogger("wakeq.client.websocket")
# At DEBUG the package would log tokens and messages.
logger.setLevel(logging.INFO)


class Denial(msgspec.Struct):
    """The answer of a broker to a client whose token is missing or has too few rights."""

    err: str
    detail: str


class WebSocket:
    """The frames of one connection."""

    def __init__(self, host: str, path: str, headers: Mapping[str, str]) -> None:
        """Begin the handshake. Raise BadSettings if host and path are not a valid address."""
        try:
            # TLS is a matter of the connection, so the scheme is always `ws`.
            address = parse_uri(f"ws://{host}{path}")
        except InvalidURI as error:
            raise BadSettings(f"{error}; write HOST:PORT, or ws://HOST:PORT/PATH") from error
        self._protocol = ClientProtocol(address, max_size=FRAME_BYTES_MAX, logger=logger)
        self._host = host
        # The fragments of a message that is not complete yet.
        self._parts: list[bytes] = []
        request = self._protocol.connect()
        request.headers.update(headers)
        self._protocol.send_request(request)

    @property
    def is_open(self) -> bool:
        """Whether the server has accepted the handshake and has not sent a close frame."""
        return self._protocol.state is State.OPEN

    def bytes_to_send(self) -> bytes:
        """Return the bytes to write to the socket now."""
        return b"".join(self._protocol.data_to_send())

    def send(self, message: bytes) -> None:
        """Queue the frame of a message for `bytes_to_send`."""
        self._protocol.send_binary(message)

    def close(self) -> bytes:
        """Return a close frame. The state does not change, because another thread may call this."""
        return Frame(Opcode.CLOSE, Close(CloseCode.NORMAL_CLOSURE, "").serialize()).serialize(mask=True)

    def receive(self, data: bytes) -> list[bytes]:
        """Read the bytes that the socket brought; return complete messages. Raise Disconnected at a close frame."""
        protocol = self._protocol
        protocol.receive_data(data)
        messages: list[bytes] = []
        for event in protocol.events_received():
            if isinstance(event, Frame) and event.opcode in DATA_OPCODES:
                self._parts.append(bytes(event.data))
                if event.fin:
                    messages.append(b"".join(self._parts))
                    self._parts.clear()
        if protocol.handshake_exc is not None:
            raise _handshake_error(self._host, protocol.handshake_exc)
        if protocol.parser_exc is not None:
            raise WrongProtocol(f"{self._host} sent a frame that no server sends: {protocol.parser_exc}")
        if protocol.close_rcvd is not None:
            reason = protocol.close_rcvd.reason or "it gave no reason"
            raise Disconnected(f"{self._host} closed the connection: {reason} ({protocol.close_rcvd.code})")
        return messages


def _handshake_error(host: str, error: Exception) -> WakeqError:
    """Return the error for a server that has not accepted the handshake."""
    match error:
        case InvalidStatus():
            return _refusal(host, error.response)
        case InvalidMessage() | SecurityError():
            return WrongProtocol(f"{host} does not speak HTTP; MoniQue is at the HTTP port of a broker (8080)")
        case _:
            return WrongProtocol(f"{host} did not answer our handshake ({error}); is there a proxy in between?")


def _refusal(host: str, response: Response) -> WakeqError:
    """Return a broker's refusal of the token in its own words, else that the server refuses the connection."""
    # Another server, or a broker with another reason, answers with some other text.
    with suppress(msgspec.MsgspecError, ValueError, RecursionError):
        denial = msgspec.json.decode(response.body, type=Denial)
        if denial.err in DENIALS:
            return DENIALS[denial.err](denial.detail)
    status = f"{response.status_code} {response.reason_phrase}"
    reason = response.body[:SHOWN_CHARS_MAX].decode(errors="replace").strip() or status
    if response.status_code == 401:
        return Unauthorized(f"{host} requires a token, or a different one (token=, WAKEQ_TOKEN): {reason}")
    kind = NotReady if "Retry-After" in response.headers else BrokerUnreachable
    return kind(f"{host} refuses WebSocket connections at this path: {reason} ({status})")
