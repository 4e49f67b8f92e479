"""HttpConnection: one connection of the HTTP port, counted like the connections of other doors.

    accepted, or a 503 --> aiohttp's parser and handlers --> closed; invalid HTTP leaves one line in the log

Must never log what a peer sent: it may contain a token.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from wakeq.actors.rate_limited_log import RateLimitedLog
from wakeq.actors.sessions.door import Admission

# Between two requests.
KEEPALIVE_S = 15.0
# For reading the rest of a refused request, so that the peer reads the refusal.
LINGER_S = 2.0
# Of a request line, and of each header.
HEADER_BYTES_MAX = 8190

# Browsers must believe the content type and load no answer into pages of other sites; no answer shows a version.
SAFE_HEADERS = {
    "Server": "wakeq",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class HttpConnection(web.RequestHandler):
    """A connection that enters and leaves the Admission of the node."""

    __slots__ = ("_address", "_admission", "_complaints", "_counted_at", "_ended", "_is_counted", "is_spare", "on_data")

    def __init__(
        self,
        admission: Admission,
        server: web.Server,
        complaints: RateLimitedLog,
        ended: Callable[["HttpConnection"], None],
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # none is kept
            keepalive_timeout=KEEPALIVE_S,
            lingering_time=LINGER_S,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            # The size of decompressed data cannot be bounded.
            auto_decompress=False,
        )
        # Told the size of each read after an upgrade.
        self.on_data: Callable[[int], None] | None = None
        self._admission = admission
        self._complaints = complaints
        self._ended = ended
        # Whether the Admission counts this connection, and whether it is a spare one.
        self._is_counted = self.is_spare = False
        # The peer's address, and the one under which it is counted: empty if addresses are not counted.
        self._address = self._counted_at = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self._address = sys.intern(str(peer[0])) if peer else ""
        self._counted_at = self._address if self._admission.counts_addresses else ""
        # A spare connection serves one request and cannot be upgraded.
        self.is_spare = bool(self._admission.full)
        refusal = self._admission.enter(self._counted_at, may_be_spare=True)
        self._is_counted = not refusal
        if refusal:
            cast(asyncio.Transport, transport).write(_too_many(refusal))
            self.force_close()

    def data_received(self, data: bytes) -> None:
        if self.on_data is not None:
            self.on_data(len(data))
        super().data_received(data)

    def eof_received(self) -> None:
        """Drop bytes behind an upgrade request, which would only cause an error."""
        self._message_tail = b""
        super().eof_received()

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log invalid HTTP without its content, which may include a token."""
        error = kw.get("exc_info") or sys.exc_info()[1]
        if isinstance(error, HttpProcessingError | web.RequestPayloadError | web.HTTPException | ConnectionError):
            self._complaints.log(f"a request from {self._address} was cut off or is not HTTP")
        else:
            super().log_exception(*args, **kw)

    def handle_error(self, *args: Any, **kw: Any) -> web.StreamResponse:
        """Answer, then release the traceback, whose frames only a full garbage collection would find."""
        try:
            response = super().handle_error(*args, **kw)
            # The application's signals do not run for invalid HTTP.
            response.headers.update(SAFE_HEADERS)
            return response
        finally:
            for error in (*args, *kw.values()):
                if isinstance(error, BaseException):
                    error.__traceback__ = None

    def connection_lost(self, exc: BaseException | None) -> None:
        self.on_data = None
        if self._is_counted:
            self._is_counted = False
            self._admission.leave(self._counted_at)
        self._ended(self)
        super().connection_lost(exc)


def _too_many(reason: str) -> bytes:
    """Return the complete answer to a connection that is refused."""
    body = f"{reason}; try again later\n".encode()
    headers = SAFE_HEADERS | {
        "Content-Type": "text/plain", "Content-Length": str(len(body)), "Retry-After": "1", "Connection": "close",
    }  # fmt: skip
    lines = [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(("HTTP/1.1 503 Service Unavailable", *lines, "", "")).encode() + body
