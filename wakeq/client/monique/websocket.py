"""WebSocket: the client's side of one connection, without a socket; the package `websockets` knows RFC 6455.

    address, headers --> request in bytes_to_send       receive <-- bytes --> messages, once the server has agreed

It says in our errors what the package finds wrong, and asks for no extension.  Whatever is to be sent, answers to the
server's pings too, is in `bytes_to_send`.  It is loaded with the first client, for `import wakeq.monique` needs no more
than the core.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from wakeq.client.core.session import NotReady, NotTheProtocol
from wakeq.protocol.errors import BadSettings, BrokerUnreachable, Disconnected, Forbidden, NotInstalled, Unauthorized
from wakeq.protocol.wire.monique.frames import FRAME_BYTES_MAX

try:
    from websockets.client import ClientProtocol
    from websockets.exceptions import InvalidMessage, InvalidStatus, InvalidURI, SecurityError
    from websockets.frames import DATA_OPCODES, Close, CloseCode, Frame, Opcode
    from websockets.http11 import Response
    from websockets.protocol import State
    from websockets.uri import parse_uri
except ImportError as error:
    raise NotInstalled("a MoniQue client needs the package websockets; pip install 'wakeq[monique]'") from error

SHOWN_CHARS_MAX = 200  # of the reason why the server does not agree
DENIALS = {kind.code: kind for kind in (Unauthorized, Forbidden)}

logger = logging.getLogger("wakeq.client.websocket")
logger.setLevel(logging.INFO)  # the package would write tokens and messages into a log of everything


class Denial(msgspec.Struct):
    """What a broker answers to somebody whose token is missing or not good enough."""

    err: str
    detail: str


class WebSocket:
    """One connection."""

    def __init__(self, host: str, path: str, headers: Mapping[str, str]) -> None:
        """Begin the handshake.  Raises BadSettings if this is no address."""
        try:
            address = parse_uri(f"ws://{host}{path}")  # TLS is the transport's
        except InvalidURI as error:
            raise BadSettings(f"{error}; write HOST:PORT, or ws://HOST:PORT/PATH") from error
        self._protocol = ClientProtocol(address, max_size=FRAME_BYTES_MAX, logger=logger)
        self._parts: list[bytes] = []  # of a message that comes in fragments
        request = self._protocol.connect()
        request.headers.update(headers)
        self._protocol.send_request(request)

    @property
    def is_open(self) -> bool:
        """Whether the server has agreed, and has not said good-bye."""
        return self._protocol.state is State.OPEN

    def bytes_to_send(self) -> bytes:
        """Return what the socket is to carry now."""
        return b"".join(self._protocol.data_to_send())

    def send(self, message: bytes) -> None:
        """Send a message."""
        self._protocol.send_binary(message)

    def close(self) -> bytes:
        """Return the frame that says good-bye; another thread may ask for it, so it changes nothing here."""
        return Frame(Opcode.CLOSE, Close(CloseCode.NORMAL_CLOSURE, "").serialize()).serialize(mask=True)

    def receive(self, data: bytes) -> list[bytes]:
        """Take what the socket gave; return whole messages.  Raises Disconnected when the server closes."""
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
            raise _refusal(protocol.handshake_exc)
        if protocol.parser_exc is not None:
            raise NotTheProtocol(f"it sent a frame that no server sends to us: {protocol.parser_exc}")
        if protocol.close_rcvd is not None:
            reason = protocol.close_rcvd.reason or "it gave no reason"
            raise Disconnected(f"the server closed the connection: {reason} ({protocol.close_rcvd.code})")
        return messages


def _refusal(error: Exception) -> Exception:
    """Return the error for a server that has not agreed."""
    match error:
        case InvalidStatus():
            return _told(error.response)
        case InvalidMessage() | SecurityError():
            return NotTheProtocol("it does not answer as an HTTP server does")
        case _:
            return NotTheProtocol(f"it answers, but not to our handshake ({error}); is a proxy in between?")


def _told(response: Response) -> Exception:
    """Return what a broker says of the token in its own words, else that the server does not agree."""
    with suppress(
        msgspec.MsgspecError, ValueError, RecursionError
    ):  # of another server, or of what another attempt may change
        denial = msgspec.json.decode(response.body, type=Denial)
        if denial.err in DENIALS:
            return DENIALS[denial.err](denial.detail)
    status = f"{response.status_code} {response.reason_phrase}"
    said = response.body[:SHOWN_CHARS_MAX].decode(errors="replace").strip() or status
    if response.status_code == 401:
        return Unauthorized(f"the server wants a token, or another one (token=, WAKEQ_TOKEN): {said}")
    kind = NotReady if "Retry-After" in response.headers else BrokerUnreachable
    return kind(f"it refuses WebSocket connections here: {said} ({status})")
