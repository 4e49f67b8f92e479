"""A Worker runs jobs again once the network to its broker works again, whatever happened to the network before.

The worker's timeouts are short, so that it leaves a silent broker after half a second and not after 5, 30 or 60; the
long tests wait for its real timeouts and those of the system.
"""

import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from tests.e2e.conftest import StartBroker
from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.network.fault_proxy import FaultProxy
from tests.helpers.network.namespaces import missing
from tests.helpers.programs.started import Started, eventually
from wakeq import Client, Worker
from wakeq.client import session
from wakeq.client.aio import AsyncClient
from wakeq.worker.engine.engine import Engine

SHORT_S = 0.5  # the patience of the worker with a broker that says nothing
WOKEN_S = 5.0  # until the broker wakes the next one instead
PING_BYTES = len(b'{"cmd":"PING","cmd_id":10}\n{"cmd":"pong","cmd_id":10}\n')
BACK_S = 10.0  # from the way being whole until a job has run: 2 x SHORT_S, a pause of 1 s, and a busy machine


class ImpatientWorker(Worker):
    """A Worker whose client gives up a silent broker soon."""

    def _make_client(self, engine: Engine[AsyncClient], **_asked: Any) -> AsyncClient:
        return AsyncClient(
            self.address,
            connect_timeout_s=SHORT_S,
            answer_timeout_s=SHORT_S,
            reconnect_for_s=math.inf,
            listener=engine,
        )


class Scene:
    """A broker, a proxy before it, a worker behind it, and a client that goes straight to the broker."""

    def __init__(self, proxy: FaultProxy, client: Client) -> None:
        self.proxy = proxy
        self.client = client
        self.ran: SimpleQueue[str] = SimpleQueue()
        self.gate = threading.Event()  # handlers of "gated" wait for it
        self.worker = worker = ImpatientWorker(proxy.address, concurrency=2, grace=5, prefetch=8)

        @worker.task("jobs", timeout=5)
        def job(name: str) -> None:
            self.ran.put(name)

        @worker.task("gated", timeout=5)
        def gated(name: str) -> None:
            self.ran.put(f"began {name}")
            self.gate.wait()
            self.ran.put(name)

    def publish(self, name: str, queue: str = "jobs") -> None:
        self.client.publish(queue, {"name": name}, timeout=5)

    def demand(self, name: str, within_s: float = BACK_S) -> None:
        """It runs; what runs before it is no matter."""
        deadline_s = time.monotonic() + within_s
        seen = []
        while not seen or seen[-1] != name:
            try:
                seen.append(self.ran.get(timeout=max(0.0, deadline_s - time.monotonic())))
            except Empty:
                raise AssertionError(f"{name!r} did not run within {within_s} s; what ran: {seen}") from None

    def asleep(self) -> None:
        eventually(lambda: self.client.stats("jobs")["sleepers"] == 1, "the worker sleeps")

    def settled(self) -> None:
        """Nothing is left, and nobody holds anything."""
        for queue in ("jobs", "gated"):
            eventually(lambda queue=queue: not self._left(queue), f"{queue} is empty")

    def _left(self, queue: str) -> int:
        stats = self.client.stats(queue)
        return int(stats["ready"] + stats["delayed"] + stats["leased"])


@pytest.fixture
def broker(clean_broker: BrokerProcess) -> BrokerProcess:
    """One broker is enough for all of these tests."""
    return clean_broker


@pytest.fixture
def scene(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Return a worker that sleeps behind a proxy."""
    monkeypatch.setattr(session, "PING_AFTER_S", SHORT_S)
    host, port = broker.worker_address
    with FaultProxy((host, port)) as proxy, Client(f"{host}:{port}") as client:
        for queue in ("jobs", "gated"):
            client.create_queue(queue, wake="all")
        scene = Scene(proxy, client)
        with scene.worker:
            scene.asleep()
            yield scene
            scene.gate.set()


def connects_again(proxy: FaultProxy) -> None:
    before = proxy.connections
    eventually(lambda: proxy.connections > before, "the worker has given up the connection")


def cut_many_times(proxy: FaultProxy) -> None:
    for _ in range(20):
        proxy.cut()


FAULTS: dict[str, Callable[[FaultProxy], Any]] = {
    "cut": lambda proxy: proxy.cut(),
    "cut many times": cut_many_times,
    "half open": lambda proxy: proxy.half_open(),
    "half open, also the next connection": lambda proxy: (proxy.half_open(), connects_again(proxy)),
    "frozen for a moment": lambda proxy: proxy.freeze(),
    "frozen, until it has given up": lambda proxy: (proxy.freeze(), connects_again(proxy)),
    "slow": lambda proxy: proxy.delay(0.1),
    "slower than its patience": lambda proxy: (proxy.delay(2 * SHORT_S), connects_again(proxy)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_sleeping_worker_is_woken_after(scene: Scene, fault: str) -> None:
    FAULTS[fault](scene.proxy)
    scene.publish("meanwhile")
    scene.proxy.mend()
    scene.demand("meanwhile")

    scene.publish("afterwards")

    scene.demand("afterwards")
    scene.settled()


@pytest.mark.parametrize("fault", ["cut many times", "half open", "frozen, until it has given up", "slow"])
def test_working_worker_continues_after(scene: Scene, fault: str) -> None:
    scene.publish("long", "gated")
    scene.demand("began long")
    scene.publish("short")

    FAULTS[fault](scene.proxy)
    scene.gate.set()
    scene.publish("meanwhile")
    scene.proxy.mend()
    scene.demand("meanwhile")

    scene.publish("afterwards")
    scene.demand("afterwards")
    scene.settled()


def test_wakes_of_a_dead_connection_are_passed_on(scene: Scene) -> None:
    """The broker believes that a worker sleeps on the half-open connection, and wakes that one first."""
    scene.client.update_queue("jobs", wake="ready")
    scene.proxy.half_open()
    connects_again(scene.proxy)
    scene.proxy.mend()
    eventually(lambda: scene.client.stats("jobs")["sleepers"] >= 2, "it sleeps again, beside its own ghosts")

    # A slow machine has had time for more connections than two.
    sleepers = int(scene.client.stats("jobs")["sleepers"])

    scene.publish("afterwards")

    scene.demand("afterwards", within_s=sleepers * WOKEN_S + BACK_S)


def test_queue_deleted_under_a_sleeping_worker_is_served_once_it_exists_again(scene: Scene) -> None:
    scene.client.delete_queue("jobs")

    scene.publish("afterwards")

    scene.demand("afterwards")
    scene.asleep()


def test_queue_deleted_under_a_handler_is_served_once_it_exists_again(scene: Scene) -> None:
    scene.publish("long", "gated")
    scene.demand("began long")
    scene.client.delete_queue("gated")
    scene.gate.set()
    scene.demand("long")

    scene.publish("afterwards", "gated")

    scene.demand("afterwards")
    scene.settled()


def test_broker_with_an_emptied_disk_is_served(scene: Scene, start_broker: StartBroker) -> None:
    scene.publish("long", "gated")
    scene.demand("began long")

    scene.proxy.target = start_broker().worker_address
    scene.proxy.cut()
    with Client("{}:{}".format(*scene.proxy.target)) as client:
        client.publish("jobs", {"name": "new"})
        scene.demand("new")
        scene.gate.set()
        scene.demand("long")
        client.publish("gated", {"name": "also new"})
        scene.demand("also new")
        eventually(lambda: client.stats("gated")["acked"] == 1, "it is settled")


# Quiet --------------------------------------------------------------------------------------------------------

QUIET_S = 3.0
# Nothing is due in the quiet time; a few wakes are left over from the beginning.
WAKES_MAX = 3

SLEEPER = """
from wakeq import Worker

worker = Worker(concurrency=8)

@worker.task("jobs")
def job(name: str) -> None: ...

@worker.task("others")
async def other(name: str) -> None: ...

worker.run()
"""


@pytest.mark.long
def test_sleeping_worker_costs_nothing(broker: BrokerProcess) -> None:
    host, port = broker.worker_address
    with FaultProxy((host, port)) as proxy, Client(f"{host}:{port}") as client:
        for queue in ("jobs", "others"):
            client.create_queue(queue)
        environment = {"WAKEQ_BROKER": proxy.address}
        with Started([sys.executable, "-c", SLEEPER], environment=environment) as worker:
            for queue in ("jobs", "others"):
                eventually(lambda queue=queue: client.stats(queue)["sleepers"] == 1, f"{queue}: it sleeps")
            carried, woken = proxy.bytes_carried, wakes(worker.pid)

            threading.Event().wait(QUIET_S)  # a stretch of time is what is measured

            assert proxy.bytes_carried == carried
            assert wakes(worker.pid) - woken <= WAKES_MAX
            assert worker.stop() == 0


def test_sleeping_worker_sends_one_ping_in_its_interval(scene: Scene) -> None:
    before, began_s = scene.proxy.bytes_carried, time.monotonic()

    eventually(lambda: scene.proxy.bytes_carried >= before + 3 * PING_BYTES, "it has pinged three times")

    carried = scene.proxy.bytes_carried - before
    # A busy machine may see more pings than three, but never more than one in each interval.
    assert carried <= ((time.monotonic() - began_s) / SHORT_S + 2) * PING_BYTES
    assert scene.proxy.connections == 1


def wakes(pid: int) -> int:
    """How often all threads of a process have gone to sleep by themselves, and so been woken."""
    threads = Path(f"/proc/{pid}/task").glob("*/status")
    return sum(int(re.findall(r"^voluntary_ctxt_switches:\s*(\d+)", thread.read_text(), re.M)[0]) for thread in threads)


# A peer that vanished -----------------------------------------------------------------------------------------

NAMESPACE = f"wakeq-{os.getpid()}"
NETWORK = f"10.213.{os.getpid() % 250}"
FOUND_DEAD_S = (6.0, 20.0)  # 11 by keepalive and TCP_USER_TIMEOUT; the last probe was up to 5 s before the fault


class Namespace:
    """A network of its own, joined to ours by a wire that can be silenced: what is sent from there gets lost."""

    def __init__(self) -> None:
        self.host = f"{NETWORK}.2"
        self.prefix = ("nsenter", f"--net=/run/netns/{NAMESPACE}")  # `ip netns exec` would hold on to every mount

    def __enter__(self) -> "Namespace":
        wire = f"wq{os.getpid()}"
        self._ip("netns", "add", NAMESPACE)
        self._ip("link", "add", wire, "type", "veth", "peer", "name", "far", "netns", NAMESPACE)
        self._ip("address", "add", f"{NETWORK}.1/24", "dev", wire)
        self._ip("link", "set", wire, "up")
        self._ip("-n", NAMESPACE, "address", "add", f"{self.host}/24", "dev", "far")
        self._ip("-n", NAMESPACE, "link", "set", "far", "up")
        self._ip("-n", NAMESPACE, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_error: object) -> None:
        self._ip("netns", "delete", NAMESPACE)

    def silence(self) -> None:
        self._ip("-n", NAMESPACE, "route", "add", "blackhole", f"{NETWORK}.1/32")

    def mend(self) -> None:
        self._ip("-n", NAMESPACE, "route", "delete", "blackhole", f"{NETWORK}.1/32")

    def _ip(self, *arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True)


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """Return a network namespace, or skip without the right to make one."""
    if reason := missing():
        pytest.skip(reason)
    with Namespace() as made:
        yield made


@pytest.mark.long
def test_vanished_broker_is_noticed_in_real_time(
    namespace: Namespace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """This takes the 11 s of keepalive (a sleeping worker) and TCP_USER_TIMEOUT (one that has sent something)."""
    gate, ran = threading.Event(), SimpleQueue[str]()
    with BrokerProcess(tmp_path / "data", "--host", namespace.host, "--insecure", prefix=namespace.prefix) as broker:
        address = "{}:{}".format(*broker.worker_address)
        sleeper, speaker = Worker(address), Worker(address)
        sleeper.task("quiet")(lambda: ran.put("quiet"))

        @speaker.task("loud")
        def loud() -> None:
            ran.put("loud")
            gate.wait()

        with Client(address) as client, sleeper, speaker:
            client.create_queue("quiet")
            client.publish("loud", {})
            eventually(lambda: client.stats("quiet")["sleepers"] == 1, "one sleeps")
            assert ran.get(timeout=BACK_S) == "loud"
            client.close()

            namespace.silence()
            silenced_s = time.time()
            gate.set()  # its ACK is on its way, and nothing comes back
            eventually(lambda: len(losses(caplog)) == 2, "both have found out", FOUND_DEAD_S[1] + 5)
            namespace.mend()

            for found_s in losses(caplog):
                assert FOUND_DEAD_S[0] < found_s - silenced_s < FOUND_DEAD_S[1]
            with Client(address) as other:
                other.publish("quiet", {})
                other.publish("loud", {})
            assert sorted([ran.get(timeout=BACK_S), ran.get(timeout=BACK_S)]) == ["loud", "quiet"]


def losses(caplog: pytest.LogCaptureFixture) -> list[float]:
    """When the connections were given up."""
    return [record.created for record in caplog.records if record.getMessage().endswith("; reconnecting")]
