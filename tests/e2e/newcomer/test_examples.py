"""Every example is run against a real broker, in the way that its docstring shows."""

import json
import re
import socketserver
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import Connect
from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.programs.started import Started, eventually
from wakeq import Client

ROOT = Path(__file__).parents[3]


@pytest.fixture
def broker(clean_broker: BrokerProcess) -> BrokerProcess:
    """One broker is enough for all of these tests."""
    return clean_broker


def started(broker: BrokerProcess, *arguments: str, **environment: str) -> Started:
    """A Python program, in the directory of the repository."""
    return Started([sys.executable, *arguments], cwd=ROOT, environment={"WAKEQ_BROKER": broker.address, **environment})


def test_worker_example_processes_waiting_and_later_messages(broker: BrokerProcess, connect: Connect) -> None:
    client = connect(broker)
    client.ask("PUB", "emails", message='{"to": "ada"}')

    with started(broker, "examples/worker.py") as worker:
        first = worker.line()
        eventually(lambda: client.ask("STATS", "emails")["stats"]["sleepers"] == 1, "it sleeps")
        client.ask("PUB", "emails", message='{"to": "grace"}')
        second = worker.line()

        assert (first, second) == ("sent ada", "sent grace")
        assert worker.stop() == 0


def test_worker_example_without_a_library_works(broker: BrokerProcess, connect: Connect) -> None:
    client = connect(broker)
    client.ask("PUB", "emails", message="first")

    with started(broker, "examples/sleeper.py", broker.address, "emails") as worker:
        assert worker.line() == "first"
        eventually(lambda: client.ask("STATS", "emails")["stats"]["sleepers"] == 1, "it sleeps")
        client.ask("PUB", "emails", message="second")
        assert worker.line() == "second"


def test_follow_up_example_publishes_with_the_acknowledgement(broker: BrokerProcess, connect: Connect) -> None:
    client = connect(broker)
    client.ask("PUB", "orders", message='{"number": 7}')

    with started(broker, "examples/follow_up.py", "orders", "invoices") as step:
        assert step.end() == 0

    assert client.ask("FET", "orders")["cmd"] == "nomsg"
    assert client.ask("FET", "invoices")["msg"] == '{"invoice for":{"number":7}}'


def test_order_example_fans_out_into_its_follow_ups(broker: BrokerProcess, connect: Connect) -> None:
    connect(broker).ask("PUB", "orders", message='{"number": 7, "items": ["tea", "cup"]}')

    with started(broker, "-m", "examples.fan_out") as worker:
        said = worker.lines(4)

    assert said == ["order 7: charged", "order 7: packed cup", "order 7: packed tea", "order 7: thanked"]


class Mailbox(socketserver.StreamRequestHandler):
    """A mail server that takes every mail, but for recipients who moved."""

    mails: list[str]

    def handle(self) -> None:
        self._say("220 here")
        while line := self.rfile.readline().decode().strip():
            match line.split()[0].upper(), line:
                case "DATA", _:
                    self._say("354 go on")
                    self.mails.append("".join(self._text()))
                    self._say("250 taken")
                case "QUIT", _:
                    self._say("221 bye")
                    return
                case "RCPT", _ if "moved@" in line:
                    self._say("550 has moved")
                case _:
                    self._say("250 well")

    def _text(self) -> Iterator[str]:
        while (line := self.rfile.readline().decode()) != ".\r\n":
            yield line

    def _say(self, text: str) -> None:
        self.wfile.write(text.encode() + b"\r\n")


@contextmanager
def mail_server() -> Iterator[tuple[str, list[str]]]:
    """Its address, and the mails that it took."""
    mails: list[str] = []
    handler = type("TheMailbox", (Mailbox,), {"mails": mails})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}", mails
        server.shutdown()


def test_mail_example_sends_mails_and_dead_letters_bad_ones(broker: BrokerProcess, connect: Connect) -> None:
    client = connect(broker)
    with (
        mail_server() as (address, mails),
        started(broker, "-m", "wakeq", "run", "examples.send_mail:worker", SMTP_SERVER=address) as worker,
    ):
        for to in ("ada@example.org", "moved@example.org"):
            with started(broker, "-m", "examples.send_mail", to, "Hello", "Dear reader.") as publisher:
                assert publisher.end() == 0, publisher.errors
        client.ask("SUB", "mails.dead")

        dead = client.ask("FET", "mails.dead", wait=20)

        eventually(lambda: len(mails) == 1, "one mail was sent")
        assert worker.stop() == 0
    assert "To: ada@example.org" in mails[0]
    assert "Dear reader." in mails[0]
    assert "moved@example.org: 550 has moved" in json.dumps(dead)


def picture(width: int, height: int) -> bytes:
    """White on the left, black on the right."""
    row = b"\xff\xff\xff" * (width // 2) + b"\0\0\0" * (width - width // 2)
    return b"P6 %d %d 255\n" % (width, height) + row * height


def test_thumbnail_example_makes_thumbnails_and_dead_letters_bad_images(
    broker: BrokerProcess, connect: Connect, tmp_path: Path
) -> None:
    client = connect(broker)
    with Client(broker.address) as publisher:
        publisher.publish_many("images", [picture(256, 128), b"no image"])
    command = [sys.executable, "examples/thumbnail.py", str(tmp_path)]

    with started(broker, "-m", "wakeq", "work", "images", "--concurrency", "2", "--", *command):
        client.ask("SUB", "images.dead")
        dead = client.ask("FET", "images.dead", wait=20)
        eventually(lambda: len(list(tmp_path.glob("*.ppm"))) == 1, "there is a thumbnail")

    (thumbnail,) = tmp_path.glob("*.ppm")
    assert thumbnail.read_bytes() == picture(64, 32).replace(b"P6 64 32 255", b"P6\n64 32\n255")
    assert "this is not a binary PPM" in json.dumps(dead)


def test_periodic_example_runs_once_in_each_slot_with_several_instances(broker: BrokerProcess) -> None:
    with (
        started(broker, "-m", "examples.periodic", PERIOD_S="1") as one,
        started(broker, "-m", "examples.periodic", PERIOD_S="1") as other,
    ):
        eventually(lambda: slots(one, other)[2:] != [], "three slots have had their run")
        assert (one.stop(), other.stop()) == (0, 0)

    ran = slots(one, other)
    assert len(ran) == len(set(ran)), ran


def slots(*instances: Started) -> list[int]:
    """Which slots have run, in order; two runs at once may share a line."""
    said = "".join(line for instance in instances for line in instance.lines_so_far())
    return sorted(int(moment) for moment in re.findall(r"report (\d{10})", said))


def test_web_example_answers_once_the_message_is_stored(broker: BrokerProcess, connect: Connect) -> None:
    with started(broker, "examples/web_app.py", "0") as app:
        address = next(word for word in app.line().split() if word.startswith("http://"))

        status, answer = post(f"{address}/emails", b'{"to": "ada@example.org"}', key="1")
        again, same = post(f"{address}/emails", b'{"to": "ada@example.org"}', key="1")
        refused, _ = post(f"{address}/emails", b"ada")
        no_key, _ = post(f"{address}/emails", b'{"to": "ada@example.org"}', key="k" * 121)
        broker.kill()
        unheard, _ = post(f"{address}/emails", b'{"to": "grace@example.org"}')
        broker.start()

        assert (status, again, refused, no_key, unheard) == (202, 202, 400, 400, 503)
        assert same == answer
        message = connect(broker).ask("FET", "emails")
        assert (message["msg"], message["uid"]) == ('{"to":"ada@example.org"}', json.loads(answer)["uid"])


def post(url: str, body: bytes, key: str = "") -> tuple[int, str]:
    """The status and the text of the answer."""
    headers = {"Idempotency-Key": key} if key else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()
