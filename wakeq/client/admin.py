"""AdminClient: the HTTP API of a broker, for the command line and for programs that operate one.

    call("GET", "/queues", prefix="a")  -->  HTTP  -->  JSON, or the WakeqError that the broker's code names
    read_range(path, start, size)       -->  HTTP  -->  bytes of a file, and its size

It keeps one connection. Of several addresses it uses the first that serves. A follower names the leader, whose address
need not be among those that were given.
"""

import http.client
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import msgspec

from wakeq.client.connection import SYSTEM, Tls, refuse_on_loop, tls_context, token_source, unreachable
from wakeq.protocol.errors import (
    BY_CODE,
    BadSettings,
    BrokerUnreachable,
    Busy,
    Disconnected,
    HistoryGone,
    NotLeader,
    Refused,
)

HTTP_PORT = 8080
DEFAULT_HTTP = f"127.0.0.1:{HTTP_PORT}"
PREFIX = "/api/v1"
# Longer than the broker takes for any call.
TIMEOUT_S = 60.0
PIECE_BYTES = 1 << 20
# A longer text in a refusal is not quoted in the error.
TEXT_BYTES_MAX = 300
NO_HEADERS: Mapping[str, str] = {}
# The number of messages in one call is limited so that progress can be shown.
CALL_MAX = 1_000


class AdminClient:
    """A client of the HTTP API. Use it in a `with` block, or close it."""

    def __init__(self, address: str | None = None, *, token: str | None = None, tls: Tls = None) -> None:
        given = address or os.environ.get("WAKEQ_HTTP") or DEFAULT_HTTP
        self._addresses = [one.strip() for one in given.split(",") if one.strip()]
        self._token = token_source(token)
        self._tls = tls
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> Any:
        """Call the API and return the decoded JSON of the answer."""
        given = {name: value for name, value in query.items() if value is not None}
        target = f"{PREFIX}{path}?{urlencode(given)}" if given else PREFIX + path
        return self._ask_leader(lambda: self._call(method, target, body))

    def text(self, path: str) -> str:
        """Get a path outside of the API, such as /readyz, with any status."""
        response = self._request("GET", path, None)
        return self._whole(response).decode()

    def download(self, path: str, write: Callable[[bytes], Any]) -> int:
        """Pass the content of a path to `write`, piece by piece; return the number of bytes."""
        return int(self._ask_leader(lambda: self._download(PREFIX + path, write)))

    def read_range(self, path: str, start: int, size: int, **query: Any) -> tuple[bytes, int]:
        """Return bytes of a file from an offset on, fewer at its end, and the size of the file.

        If the connection breaks in the middle, the range is asked for once more.
        """
        target = f"{PREFIX}{path}?{urlencode(query)}"
        try:
            return self._read_range(target, start, size)
        except Disconnected:
            return self._read_range(target, start, size)

    @contextmanager
    def stream(self, path: str) -> Iterator[Iterator[bytes]]:
        """Open an endless stream and iterate over its lines."""
        try:
            yield _checked(iter(self._ask_leader(lambda: self._opened(PREFIX + path))))
        finally:
            # The rest of the answer is not read, so the connection cannot be used again.
            self.close()

    # ----------------------------------------------------------------------------------------------------------------

    def _ask_leader(self, ask: Callable[[], Any]) -> Any:
        """Ask the connected node. If it follows or is gone, ask the leader that it names, or the other addresses."""
        last: NotLeader | BrokerUnreachable | None = None
        for _ in range(len(self._addresses) + 1):
            try:
                return ask()
            except (NotLeader, BrokerUnreachable) as error:
                last = error
                self.close()
                self._addresses.append(self._addresses.pop(0))
                if isinstance(error, _Redirect):
                    self._addresses = [error.address, *(one for one in self._addresses if one != error.address)]
        assert last is not None, "there is an address"
        raise last

    def _call(self, method: str, target: str, sent: Mapping[str, Any] | None) -> Any:
        response = self._request(method, target, {} if sent is None and method in ("POST", "PATCH") else sent)
        if response.status != 200:
            raise _refusal(response, self._whole(response))
        body = self._whole(response)
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Refused(f"the answer is not JSON ({error}); is this the HTTP port of a broker?") from None

    def _opened(self, target: str) -> http.client.HTTPResponse:
        response = self._request("GET", target, None)
        if response.status != 200:
            raise _refusal(response, self._whole(response))
        return response

    def _download(self, target: str, write: Callable[[bytes], Any]) -> int:
        response, size = self._opened(target), 0
        for piece in _checked(iter(lambda: response.read(PIECE_BYTES), b"")):
            write(piece)
            size += len(piece)
        return size

    def _read_range(self, target: str, start: int, size: int) -> tuple[bytes, int]:
        response = self._request("GET", target, None, {"Range": f"bytes={start}-{start + size - 1}"})
        of_file = response.headers.get("Content-Range", "").rpartition("/")[2]
        if response.status == http.HTTPStatus.PARTIAL_CONTENT and of_file.isdecimal():
            return self._whole(response), int(of_file)
        if response.status == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and of_file.isdecimal():
            self._whole(response)
            return b"", int(of_file)
        raise _refusal(response, self._whole(response))

    def _whole(self, response: http.client.HTTPResponse) -> bytes:
        try:
            return b"".join(_checked(iter(response.read, b"")))
        except Disconnected:
            self.close()
            raise

    def _request(
        self, method: str, target: str, body: Mapping[str, Any] | None, more: Mapping[str, str] = NO_HEADERS
    ) -> http.client.HTTPResponse:
        refuse_on_loop("a call of AdminClient", "await asyncio.to_thread(...) with the call")
        token = self._token() or ""
        # The error of http.client would show it.
        if not (token.isascii() and token.isprintable()):
            raise BadSettings("the token has a character that no token has, such as a line break; check WAKEQ_TOKEN")
        headers = dict(more) | ({"Authorization": f"Bearer {token}"} if token else {})
        data = None
        if body is not None:
            data, headers["Content-Type"] = msgspec.json.encode(body), "application/json"
        is_new = self._connection is None
        connection = self._connection = self._connection or _connection(self._addresses[0], self._tls)
        try:
            # The server may answer with a refusal before it has read the whole request.
            with suppress(BrokenPipeError):
                connection.request(method, target, data, headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            # The server may have closed the idle connection.
            if not is_new and method == "GET":
                return self._request(method, target, body, more)
            address = self._addresses[0]
            if not isinstance(error, http.client.HTTPException):
                raise unreachable(address, error) from error
            raise BrokerUnreachable(
                f"{address} does not speak HTTP; check the address of the HTTP port (--http, WAKEQ_HTTP, or the URL), "
                "and --tls if it has TLS"
            ) from error


def _checked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the pieces of an answer; raise Disconnected if the connection breaks."""
    try:
        yield from pieces
    except (OSError, http.client.HTTPException) as error:
        raise Disconnected(f"the broker stopped in the middle of the answer: {error!r}; see its log") from error


class _Redirect(NotLeader):
    """The node is a follower and names the HTTP address of the leader."""

    address = ""


def _connection(address: str, tls: Tls) -> http.client.HTTPConnection:
    parts = urlsplit(address if "://" in address else f"http://{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("http", "https"):
        raise BadSettings(f"{address!r} is not the HTTP address of a broker; write HOST:PORT, such as {DEFAULT_HTTP}")
    if tls is None and parts.scheme == "https" and not os.environ.get("WAKEQ_TLS"):
        tls = SYSTEM
    context = tls_context(tls)
    if context is not None:
        return http.client.HTTPSConnection(host, port or HTTP_PORT, timeout=TIMEOUT_S, context=context)
    return http.client.HTTPConnection(host, port or HTTP_PORT, timeout=TIMEOUT_S)


def _refusal(response: http.client.HTTPResponse, body: bytes) -> Refused | HistoryGone:
    try:
        error = msgspec.json.decode(body)["error"]
        code, detail = error["code"], error["detail"]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return _foreign_refusal(response, _short_text(response, body))
    leader = f" (its worker port is {error['leader']})" if error.get("leader") else ""
    if code == HistoryGone.code:
        return HistoryGone(detail)
    refusal = BY_CODE.get(code, Refused)(f"{detail}{leader}")
    location = urlsplit(response.headers.get("Location", ""))
    if isinstance(refusal, NotLeader) and location.netloc:
        redirect = _Redirect(str(refusal))
        redirect.address = f"{location.scheme}://{location.netloc}"
        return redirect
    return refusal


def _foreign_refusal(response: http.client.HTTPResponse, text: str) -> Refused:
    """Return the error for an answer that is not the API's: of a broker at its limit, a proxy, or another server."""
    answer = f"the answer was HTTP {response.status} {response.reason}"
    if response.status == http.HTTPStatus.SERVICE_UNAVAILABLE:
        return Busy(text or f"{answer}; try again later")
    return Refused(f"{answer}{text and f': {text}'}; is this the HTTP port of a broker?")


def _short_text(response: http.client.HTTPResponse, body: bytes) -> str:
    """Return the body if it is plain text and short, else nothing."""
    if response.headers.get_content_type() != "text/plain" or len(body) > TEXT_BYTES_MAX:
        return ""
    try:
        return body.decode().strip()
    except UnicodeDecodeError:
        return ""


def apply_to_selected(
    client: AdminClient,
    path: str,
    queue: str,
    body: Mapping[str, Any],
    *,
    limit: int | None = None,
    progress: Callable[[Mapping[str, int]], None] = lambda _: None,
    strangers: set[str] | None = None,
) -> dict[str, int]:
    """Apply an operation to all selected messages, with as many calls as needed; return the sums.

    A redrive adds the origins whose letters it did not move to `strangers`.
    """
    sums = {"scanned": 0, "matched": 0, "done": 0}
    page: dict[str, Any] = {}
    while True:
        left = CALL_MAX if limit is None else min(CALL_MAX, limit - sums["matched"])
        answer = client.call("POST", path, {**body, **page, "limit": left}, queue=queue)
        for name in sums:
            sums[name] += answer[name]
        if strangers is not None:
            strangers |= set(answer["strangers"])
        progress(sums)
        if not answer["after"] or (limit is not None and sums["matched"] >= limit):
            return sums
        page = {"after": answer["after"], "through": answer["through"]}
