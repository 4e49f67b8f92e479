"""Tests of AdminClient with answers that are not the API's."""

from collections.abc import Callable
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from wakeq.client.admin import AdminClient
from wakeq.protocol.errors import Busy, Refused

FULL = b"there are 5 connections already; try again later\n"
PLAIN = "text/plain; charset=utf-8"


def answered(status: int, content_type: str, body: bytes) -> Refused:
    """Return the error that this answer to a call raises."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        log_request: Callable[..., None] = lambda *_: None

    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        answering = Thread(target=server.handle_request)
        answering.start()
        with (
            AdminClient(f"127.0.0.1:{server.server_address[1]}") as operator,
            pytest.raises(Refused) as caught,
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
