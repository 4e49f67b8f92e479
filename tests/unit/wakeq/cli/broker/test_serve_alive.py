"""`wakeq alive`: its errors if the port has no broker."""

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from tests.helpers.network.ports import free_port
from wakeq.cli import main

Capsys = pytest.CaptureFixture[str]


class Stranger(BaseHTTPRequestHandler):
    """A server that is no broker."""

    def do_GET(self) -> None:
        self.send_error(404)

    log_request: Callable[..., None] = lambda *_: None


@pytest.mark.parametrize(
    ("port", "words"), [(0, "a different port at each start"), (None, "(Connection refused); see its log")]
)
def test_alive_without_a_broker_says_so(capsys: Capsys, port: int | None, words: str) -> None:
    assert main(["alive", "--http-port", str(free_port() if port is None else port)]) != 0

    assert words in capsys.readouterr().err


def test_alive_of_another_server_fails(capsys: Capsys) -> None:
    with HTTPServer(("127.0.0.1", 0), Stranger) as server:
        answering = Thread(target=server.handle_request)
        answering.start()

        status = main(["alive", "--http-port", str(server.server_address[1])])
        answering.join()

    assert status == 69
    assert "answers /livez with status 404" in capsys.readouterr().err
