"""Tests of AdminClient with answers that are not the API's."""

from collections.abc import Callable
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from wakeq.client.admin import AdminClient
from wakeq.protocol.errors import BadSettings, Busy, Disconnected, Refused, WakeqError

FULL = b"there are 5 connections already; try again later\n"
PLAIN = "text/plain; charset=utf-8"


def answered(status: int, content_type: str, body: bytes, *, missing_bytes: int = 0) -> WakeqError:
    """Return the error that this answer to a call raises; the connection may end before all of it was sent."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body) + missing_bytes))
            self.end_headers()
            self.wfile.write(body)

        log_request: Callable[..., None] = lambda *_: None

    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        answering = Thread(target=server.handle_request)
        answering.start()
        with (
            AdminClient(f"127.0.0.1:{server.server_address[1]}") as operator,
            pytest.raises(WakeqError) as caught,
        ):
            operator.call("GET", "/queues")
        answering.join()
    return caught.value


def test_broker_at_its_limit_raises_busy_with_the_reason() -> None:
    error = answered(503, PLAIN, FULL)

    assert type(error) is Busy
    assert str(error) == "there are 5 connections already; try again later"


def test_answer_before_the_end_of_the_request_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    request = HTTPConnection.request

    def break_behind(connection: HTTPConnection, *arguments: Any) -> None:
        request(connection, *arguments)
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(HTTPConnection, "request", break_behind)

    assert type(answered(503, PLAIN, FULL)) is Busy


def test_service_unavailable_from_a_proxy_raises_busy() -> None:
    error = answered(503, "text/html", b"<html>upstream</html>")

    assert type(error) is Busy
    assert str(error) == "the answer was HTTP 503 Service Unavailable; try again later"


@pytest.mark.parametrize(
    ("content_type", "body", "shown"),
    [
        (PLAIN, b"no such page\n", ": no such page"),
        (PLAIN, b"x" * 1000, ""),
        (PLAIN, b"\xff", ""),
        ("text/html", b"<html>no</html>", ""),
        ("application/json", b"[]", ""),
    ],
    ids=["short", "long", "no text", "a page", "another API"],
)
def test_foreign_server_is_reported_with_its_short_text(content_type: str, body: bytes, shown: str) -> None:
    error = answered(404, content_type, body)

    assert type(error) is Refused
    assert str(error) == f"the answer was HTTP 404 Not Found{shown}; is this the HTTP port of a broker?"


class Ranges:
    """A server that breaks off some of its answers in the middle, and counts the connections."""

    def __init__(self, *, broken: int) -> None:
        self.connections = 0
        self.asked: list[str] = []
        ranges = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                ranges.connections += 1

            def do_GET(self) -> None:
                ranges.asked.append(self.headers["Range"])
                self.send_response(206)
                self.send_header("Content-Length", "10")
                self.send_header("Content-Range", "bytes 5-14/100")
                self.end_headers()
                self.close_connection = len(ranges.asked) <= broken
                self.wfile.write(b"half" if self.close_connection else b"0123456789")

            log_request: Callable[..., None] = lambda *_: None

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)

    def __enter__(self) -> str:
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return f"127.0.0.1:{self.server.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_range_is_asked_for_again_when_the_connection_breaks() -> None:
    ranges = Ranges(broken=1)
    with ranges as address, AdminClient(address) as operator:
        found = [operator.read_range("/journal/segment", 5, 10, first_index=1) for _ in range(2)]

    assert found == [(b"0123456789", 100)] * 2
    assert ranges.asked == ["bytes=5-14"] * 3
    assert ranges.connections == 2, "the connection is kept between ranges"


def test_range_that_breaks_twice_is_an_error() -> None:
    with (
        Ranges(broken=2) as address,
        AdminClient(address) as operator,
        pytest.raises(Disconnected, match="in the middle of the answer"),
    ):
        operator.read_range("/journal/segment", 5, 10, first_index=1)


def test_server_without_ranges_is_refused() -> None:
    class Whole(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

        log_request: Callable[..., None] = lambda *_: None

    with HTTPServer(("127.0.0.1", 0), Whole) as server:
        answering = Thread(target=server.handle_request)
        answering.start()
        with (
            AdminClient(f"127.0.0.1:{server.server_address[1]}") as operator,
            pytest.raises(Refused, match="is this the HTTP port of a broker"),
        ):
            operator.read_range("/journal/segment", 0, 10, first_index=1)
        answering.join()


@pytest.mark.parametrize("token", ["first\nsecond", "geheim\u20ac"])
def test_token_with_a_character_that_no_token_has_is_refused_without_showing_it(token: str) -> None:
    with AdminClient("127.0.0.1:1", token=token) as client, pytest.raises(BadSettings, match="WAKEQ_TOKEN") as refused:
        client.call("GET", "/queues")

    assert token[:5] not in str(refused.value)


@pytest.mark.parametrize("status", [200, 500])
def test_answer_that_breaks_off_is_reported_as_a_broken_connection(status: int) -> None:
    error = answered(status, "application/json", b'{"segments": [', missing_bytes=100)

    assert type(error) is Disconnected
    assert "stopped in the middle of the answer" in str(error)
