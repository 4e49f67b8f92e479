"""ZmqComponent: a MoniQue component as the Python one connects: PUSH and SUB on both layers, PULL at a controller.

    frames --> PUSH --> scheduler --> SUB --> frames          controller --> PULL --> frames

It knows no type: a test says which bytes go out, and sees those that come in.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgpack
import zmq

ANSWER_MS_MAX = 10_000
QUIET_MS = 150  # in which nothing comes, as far as a test can wait for nothing
PROBE_EVERY_MS = 20

Frames = list[bytes]


class ZmqComponent:
    """Connected when it is made: what is sent from now on is heard."""

    def __init__(self, addresses: dict[str, str], *, prefix: bytes = b"", controller: str = "") -> None:
        self._context = zmq.Context()
        self.push, self.technical_push = self._socket(zmq.PUSH), self._socket(zmq.PUSH)
        self.sub, self.technical_sub = self._socket(zmq.SUB), self._socket(zmq.SUB)
        self.pull = self._socket(zmq.PULL)
        self.push.connect(f"tcp://{addresses['scheduler-in']}")
        self.technical_push.connect(f"tcp://{addresses['technical-in']}")
        for sub, name, wanted in ((self.sub, "scheduler-out", prefix), (self.technical_sub, "technical-out", b"")):
            sub.connect(f"tcp://{addresses[name]}")
            sub.subscribe(wanted)
        if controller:
            self.pull.connect(f"tcp://{controller}")
        self._wait_until_subscribed(prefix)

    def _socket(self, kind: int) -> "zmq.Socket[bytes]":
        made = self._context.socket(kind)
        made.linger = 0
        return made

    def _wait_until_subscribed(self, prefix: bytes) -> None:
        """A subscription takes effect some time later, and nobody says when: send until something comes."""
        probe = packed(spec="probe", type="data", pid="", data=b"{}")
        for push, sub in ((self.push, self.sub), (self.technical_push, self.technical_sub)):
            if sub is self.sub and prefix:
                sub.subscribe(b"data:probe")
            deadline_s = time.monotonic() + ANSWER_MS_MAX / 1000
            while True:
                push.send_multipart(probe)
                if sub.poll(PROBE_EVERY_MS):
                    break
                assert time.monotonic() < deadline_s, "nothing comes back"
            if sub is self.sub and prefix:
                sub.unsubscribe(b"data:probe")
            while sub.poll(QUIET_MS):
                sub.recv_multipart()

    def send(self, frames: Frames) -> None:
        self.push.send_multipart(frames)

    def send_technical(self, frames: Frames) -> None:
        self.technical_push.send_multipart(frames)

    def hear(self) -> Frames:
        return taken(self.sub)

    def hear_technical(self) -> Frames:
        return taken(self.technical_sub)

    def task(self) -> Frames:
        """The next task of the controller."""
        return taken(self.pull)

    def close(self) -> None:
        self._context.destroy(linger=0)


def taken(socket: "zmq.Socket[bytes]") -> Frames:
    """The next transfer."""
    assert socket.poll(ANSWER_MS_MAX), "nothing came"
    return socket.recv_multipart()


def is_quiet(socket: "zmq.Socket[bytes]") -> bool:
    """Whether nothing comes for a while."""
    return not socket.poll(QUIET_MS)


def packed(*, spec: str, type: str, pid: str = "", data: bytes = b"{}", id: str = "i" * 40, **other: Any) -> Frames:
    """A transfer, as the Python component packs it."""
    fields = {
        "id": id,
        "pid": pid,
        "creator": "component",
        "created_at": 1528138732079,
        "expires_at": 0,
        "spec": spec,
        "encoding": "JSON",
        "type": type,
        "data": data,
    } | other
    return [f"{type}:{spec}:{id}:{pid}:component".encode(), msgpack.packb(fields)]


def config_json(path: Path, **controllers: int) -> Path:
    """Write a config.json with free ports everywhere; controllers are spec and port."""
    ports = {"host": "127.0.0.1", "comport": 0, "techport": 0}
    deploy = {
        "scheduler-in": ports,
        "scheduler-out": ports,
        "websocket": {"host": "127.0.0.1", "port": 0},
        "controller": {"host": "127.0.0.1"},
    }
    params = {"mq_controller": {"connections": controllers}}
    path.write_text(json.dumps({"build": {"any": 1}, "deploy": {"monique": deploy}, "params": params}))
    return path


@contextmanager
def component(addresses: dict[str, str], *, prefix: bytes = b"", controller: str = "") -> Iterator[ZmqComponent]:
    made = ZmqComponent(addresses, prefix=prefix, controller=controller)
    try:
        yield made
    finally:
        made.close()
