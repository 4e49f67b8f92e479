"""AdminClient: the HTTP API of a broker, for the command line and for programs that operate one.

    call("GET", "/queues", prefix="a")  -->  HTTP  -->  JSON, or the WakeqError that the broker's code names

It keeps one connection.  Of several addresses it takes the first that serves: a node that follows says so, and where
the leader is, which may be none of them.
"""

import http.client
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import msgspec

from wakeq.client.credentials import context_of, token_source
from wakeq.client.on_loop import refuse_on_loop
from wakeq.protocol.errors import BY_CODE, BadSettings, BrokerUnreachable, Busy, Disconnected, NotLeader, Refused

HTTP_PORT = 8080
DEFAULT_HTTP = f"127.0.0.1:{HTTP_PORT}"
PREFIX = "/api/v1"
TIMEOUT_S = 60.0  # longer than any call is paced
PIECE_BYTES = 1 << 20
SENTENCE_BYTES_MAX = 300  # of a refusal that is not JSON
CALL_MAX = 1_000  # messages in one call, so that progress is seen


class AdminClient:
    """See the head of this file.  Use it in a `with`, or close it."""

    def __init__(self, address: str | None = None, *, token: str | None = None) -> None:
        given = address or os.environ.get("WAKEQ_HTTP") or DEFAULT_HTTP
        self._addresses = [one.strip() for one in given.split(",") if one.strip()]
        self._token = token_source(token)
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
        """Ask for something; return the JSON of the answer."""
        target = PREFIX + path + _query(query)
        return self._of_the_leader(lambda: self._call(method, target, body))

    def text(self, path: str) -> str:
        """Get a path that is not of the API, such as /readyz, whatever its status."""
        response = self._request("GET", path, None)
        return response.read().decode()

    def download(self, path: str, write: Callable[[bytes], Any]) -> int:
        """Hand what a path gives to `write`, piece by piece; return how many bytes it was."""
        return int(self._of_the_leader(lambda: self._download(PREFIX + path, write)))

    @contextmanager
    def stream(self, path: str) -> Iterator[Iterator[bytes]]:
        """Open a path that goes on for ever; read its lines."""
        try:
            yield _whole(iter(self._of_the_leader(lambda: self._opened(PREFIX + path))))
        finally:
            self.close()  # the rest of it is not read

    # ----------------------------------------------------------------------------------------------------------------

    def _of_the_leader(self, ask: Callable[[], Any]) -> Any:
        """Ask the node that is connected; if it follows or is gone, the one that it names, or the others."""
        last: NotLeader | BrokerUnreachable | None = None
        for _ in range(len(self._addresses) + 1):
            try:
                return ask()
            except (NotLeader, BrokerUnreachable) as error:
                last = error
                self.close()
                self._addresses.append(self._addresses.pop(0))
                if isinstance(error, _Elsewhere):
                    self._addresses = [error.address, *(one for one in self._addresses if one != error.address)]
        assert last is not None, "there is an address"
        raise last

    def _call(self, method: str, target: str, body: Mapping[str, Any] | None) -> Any:
        response = self._request(method, target, {} if body is None and method in ("POST", "PATCH") else body)
        if response.status != 200:
            raise _refusal(response)
        try:
            return msgspec.json.decode(response.read())
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Refused(f"the answer is no JSON ({error}); is this the HTTP port of a broker?") from None

    def _opened(self, target: str) -> http.client.HTTPResponse:
        response = self._request("GET", target, None)
        if response.status != 200:
            raise _refusal(response)
        return response

    def _download(self, target: str, write: Callable[[bytes], Any]) -> int:
        response, size = self._opened(target), 0
        for piece in _whole(iter(lambda: response.read(PIECE_BYTES), b"")):
            write(piece)
            size += len(piece)
        return size

    def _request(self, method: str, target: str, body: Mapping[str, Any] | None) -> http.client.HTTPResponse:
        refuse_on_loop("a call of AdminClient", "await asyncio.to_thread(...) with the call")
        token = self._token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        data = None
        if body is not None:
            data, headers["Content-Type"] = msgspec.json.encode(body), "application/json"
        is_new = self._connection is None
        connection = self._connection = self._connection or _connection(self._addresses[0])
        try:
            with suppress(BrokenPipeError):  # who is refused at the door has its answer before all is asked
                connection.request(method, target, data, headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not is_new and method == "GET":  # it was kept alive for too long
                return self._request(method, target, body)
            what = str(error) if isinstance(error, OSError) else "what answers there speaks something else"
            raise BrokerUnreachable(
                f"no broker answers over HTTP at {self._addresses[0]}: {what}; "
                "name its HTTP port with --http or WAKEQ_HTTP, and --tls if it has TLS"
            ) from error


def _whole(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield what comes of an answer; raise Disconnected if it breaks off."""
    try:
        yield from pieces
    except (OSError, http.client.HTTPException) as error:
        raise Disconnected(f"the broker stopped in the middle of it: {error!r}; look into its log") from error


class _Elsewhere(NotLeader):
    """The node that was asked follows, and names the leader."""

    address = ""


def _connection(address: str) -> http.client.HTTPConnection:
    parts = urlsplit(address if "://" in address else f"http://{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("http", "https"):
        raise BadSettings(f"{address!r} is not the HTTP address of a broker; write HOST:PORT, such as {DEFAULT_HTTP}")
    context = context_of("system" if parts.scheme == "https" and not os.environ.get("WAKEQ_TLS") else None)
    if context is not None:
        return http.client.HTTPSConnection(host, port or HTTP_PORT, timeout=TIMEOUT_S, context=context)
    return http.client.HTTPConnection(host, port or HTTP_PORT, timeout=TIMEOUT_S)


def _query(query: Mapping[str, Any]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return "?" + urlencode(given) if given else ""


def _refusal(response: http.client.HTTPResponse) -> Refused:
    body = response.read()
    try:
        error = msgspec.json.decode(body)["error"]
        code, detail = error["code"], error["detail"]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return _refusal_in_words(response, _sentence(response, body))
    leader = f" (its worker port is {error['leader']})" if error.get("leader") else ""
    refusal = BY_CODE.get(code, Refused)(f"{detail}{leader}")
    location = urlsplit(response.headers.get("Location", ""))
    if isinstance(refusal, NotLeader) and location.netloc:
        elsewhere = _Elsewhere(str(refusal))
        elsewhere.address = f"{location.scheme}://{location.netloc}"
        return elsewhere
    return refusal


def _refusal_in_words(response: http.client.HTTPResponse, sentence: str) -> Refused:
    """The error of an answer that is not the API's: of a broker that is full, a proxy, or another server."""
    answer = f"the answer was HTTP {response.status} {response.reason}"
    if response.status == http.HTTPStatus.SERVICE_UNAVAILABLE:
        return Busy(sentence or f"{answer}; try again later")
    return Refused(f"{answer}{sentence and f': {sentence}'}; is this the HTTP port of a broker?")


def _sentence(response: http.client.HTTPResponse, body: bytes) -> str:
    """What it says, if it is for people and short."""
    if response.headers.get_content_type() != "text/plain" or len(body) > SENTENCE_BYTES_MAX:
        return ""
    try:
        return body.decode().strip()
    except UnicodeDecodeError:
        return ""


def selected(
    client: AdminClient,
    path: str,
    queue: str,
    body: Mapping[str, Any],
    *,
    limit: int | None = None,
    progress: Callable[[Mapping[str, int]], None] = lambda _: None,
    strangers: set[str] | None = None,
) -> dict[str, int]:
    """Do something to all messages that are meant, call after call; return the sums.

    `strangers` takes the queues for which a redrive has left letters.
    """
    sums = {"scanned": 0, "matched": 0, "done": 0}
    more: dict[str, Any] = {}
    while True:
        left = CALL_MAX if limit is None else min(CALL_MAX, limit - sums["matched"])
        answer = client.call("POST", path, {**body, **more, "limit": left}, queue=queue)
        for name in sums:
            sums[name] += answer[name]
        if strangers is not None:
            strangers |= set(answer["strangers"])
        progress(sums)
        if not answer["after"] or (limit is not None and sums["matched"] >= limit):
            return sums
        more = {"after": answer["after"], "through": answer["through"]}
