"""HttpConnection: one connection of the HTTP port, counted like those of the other doors.

    accepted, or a 503 --> aiohttp's parser and handlers --> closed; what is no HTTP leaves one line in the log

Must never log what a peer sent: a token may be in it.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from wakeq.actors.complaints import Complaints
from wakeq.actors.sessions.door import Admission

KEEPALIVE_S = 15.0  # between two requests
LINGER_S = 2.0  # for the rest of a request that was refused, so that the peer gets to read why
HEADER_BYTES_MAX = 8190  # of a request line, and of each header

# Every answer says that it is what its type says, that no page of another site may show it, and no version of anything.
SAFE_HEADERS = {
    "Server": "wakeq",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class HttpConnection(web.RequestHandler):
    """One connection, counted like those of the other doors."""

    __slots__ = ("_address", "_admission", "_complaints", "_counted_at", "_ended", "_is_counted", "hears", "is_spare")

    def __init__(
        self,
        admission: Admission,
        server: web.Server,
        complaints: Complaints,
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
            auto_decompress=False,  # what little bytes unpack to cannot be bounded
        )
        self.hears: Callable[[int], None] | None = None  # who wants to know how much comes, after an upgrade
        self._admission = admission
        self._complaints = complaints
        self._ended = ended
        self._is_counted = self.is_spare = False
        self._address = self._counted_at = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self._address = sys.intern(str(peer[0])) if peer else ""
        self._counted_at = self._address if self._admission.counts_addresses else ""
        self.is_spare = bool(self._admission.full)  # it is for a request, and no place to stay
        refusal = self._admission.enter(self._counted_at, may_be_spare=True)
        self._is_counted = not refusal
        if refusal:
            cast(asyncio.Transport, transport).write(_too_many(refusal))
            self.force_close()

    def data_received(self, data: bytes) -> None:
        if self.hears is not None:
            self.hears(len(data))
        super().data_received(data)

    def eof_received(self) -> None:
        """Nothing more is answered: what came behind a request for an upgrade would only make an error."""
        self._message_tail = b""
        super().eof_received()

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """What is no HTTP is the peer's affair, and may have its token in it: say no more than that."""
        error = kw.get("exc_info") or sys.exc_info()[1]
        if isinstance(error, HttpProcessingError | web.RequestPayloadError | web.HTTPException | ConnectionError):
            self._complaints.say(f"a request was cut off, or is no HTTP: from {self._address}")
        else:
            super().log_exception(*args, **kw)

    def handle_error(self, *args: Any, **kw: Any) -> web.StreamResponse:
        """Answer; then let go of the frames, which hold what failed: only a full collection would find them."""
        try:
            response = super().handle_error(*args, **kw)
            response.headers.update(SAFE_HEADERS)  # of what is no HTTP the application never hears
            return response
        finally:
            for error in (*args, *kw.values()):
                if isinstance(error, BaseException):
                    error.__traceback__ = None

    def connection_lost(self, exc: BaseException | None) -> None:
        self.hears = None
        if self._is_counted:
            self._is_counted = False
            self._admission.leave(self._counted_at)
        self._ended(self)
        super().connection_lost(exc)


def _too_many(reason: str) -> bytes:
    """The whole answer to a connection that there is no room for."""
    body = f"{reason}; try again later\n".encode()
    headers = SAFE_HEADERS | {
        "Content-Type": "text/plain", "Content-Length": str(len(body)), "Retry-After": "1", "Connection": "close",
    }  # fmt: skip
    lines = [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(("HTTP/1.1 503 Service Unavailable", *lines, "", "")).encode() + body
