"""Both clients against a real broker: lives of messages, a broker that is killed or hangs, and the client's log."""

import asyncio
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from tests.e2e.conftest import StartBroker
from tests.helpers.brokers.process import BrokerProcess
from wakeq import AsyncClient, Client, StaleLease, errors

DEADLINE_S = 30.0


@pytest.fixture
def start_again(start_broker: StartBroker) -> Callable[[], BrokerProcess]:
    """Return a function that starts a broker which comes back at the port that it had."""

    def start() -> BrokerProcess:
        broker = start_broker()
        broker.extra_args = ("--worker-port", str(broker.worker_address[1]))
        return broker

    return start


# Lives ----------------------------------------------------------------------------------------------------


def test_message_is_delivered_with_every_field_it_was_published_with(shared_broker: BrokerProcess) -> None:
    with Client(shared_broker.address) as client:
        uid = client.publish("lives", {"to": "a@b.c"}, timeout=30, headers={"trace": "1"}, priority=-5)

        message = client.fetch("lives", wait=10)
        assert message is not None
        assert (message.uid, message.json(), message.delivery, message.failures) == (uid, {"to": "a@b.c"}, 1, 0)
        assert (dict(message.headers), message.priority) == ({"trace": "1"}, -5)
        assert message.touch(60)
        assert message.ack(then=[("audit", {"sent": uid})])

        follow_up = client.fetch("audit", wait=10)
        assert follow_up is not None
        with follow_up:
            assert follow_up.json() == {"sent": uid}
        assert client.fetch("lives") is None


def test_release_counts_no_failure_and_rejection_is_final(shared_broker: BrokerProcess) -> None:
    with Client(shared_broker.address) as client:
        client.publish("ends", "x")

        for failures, end in ((0, lambda message: message.release()), (0, lambda message: message.nack(delay=0))):
            message = client.fetch("ends", wait=10)
            assert message is not None
            assert message.failures == failures
            assert end(message)
        message = client.fetch("ends", wait=10)
        assert message is not None
        assert (message.delivery, message.failures) == (3, 1)
        assert message.reject("no such address")

        letter = client.fetch("ends.dead", wait=10)
        assert letter is not None
        assert letter.headers["wakeq-error"] == "no such address"
        assert client.fetch("ends") is None


def test_outcome_of_a_batch_is_reported_for_each_uid(shared_broker: BrokerProcess) -> None:
    with Client(shared_broker.address) as client:
        client.publish_many("many", ["a", "b", "c"])
        first, second, third = client.fetch_many("many", 3)
        first.ack()
        second.nack(delay=0)
        (second_again,) = client.fetch_many("many", 1)

        settled = client.ack_many([first, second, third])

        assert second_again.uid == second.uid
        assert (settled.done, settled.unknown, settled.stale) == ([third.uid], [first.uid], [second.uid])
        assert not settled
        with pytest.raises(StaleLease):
            second.ack()


def test_publish_with_the_same_id_is_stored_once_across_clients(shared_broker: BrokerProcess) -> None:
    uids = set()
    for _ in range(2):
        with Client(shared_broker.address) as client:
            uids.add(client.publish("ids", "x", id="order-7"))

    assert len(uids) == 1


def test_cancelled_fetch_leases_no_message(shared_broker: BrokerProcess) -> None:
    async def work() -> None:
        async with AsyncClient(shared_broker.address) as worker, AsyncClient(shared_broker.address) as other:
            fetch = asyncio.create_task(worker.fetch("cancelled", wait=60))
            await asyncio.sleep(0)
            await worker.ping()  # the broker has the fetch
            fetch.cancel()
            await asyncio.wait([fetch])

            await other.publish("cancelled", "x", timeout=3600)
            message = await other.fetch("cancelled", wait=10)

            assert message is not None
            assert (message.delivery, message.failures) == (2, 0)

    asyncio.run(asyncio.wait_for(work(), DEADLINE_S))


# Brokers that go away -------------------------------------------------------------------------------------


def test_publishes_during_a_kill_are_each_stored_once(start_again: Callable[[], BrokerProcess]) -> None:
    broker = start_again()
    bodies = [str(number) for number in range(600)]

    async def work() -> None:
        async with AsyncClient(broker.address, reconnect_for_s=DEADLINE_S) as client:
            publishes = [asyncio.create_task(client.publish("q", body)) for body in bodies]
            await publishes[200]
            await asyncio.to_thread(broker.restart)
            uids = await asyncio.gather(*publishes)
            assert len(set(uids)) == len(bodies)

            stored = []
            while messages := await client.fetch_many("q", 1000):
                stored += [message.text() for message in messages]
                assert await client.ack_many(messages)
            assert sorted(stored) == sorted(bodies)

    asyncio.run(asyncio.wait_for(work(), 3 * DEADLINE_S))


def test_threads_of_a_client_continue_after_a_kill(start_again: Callable[[], BrokerProcess]) -> None:
    broker = start_again()
    uids: list[str] = []
    begun = threading.Barrier(4)

    def publish(client: Client) -> None:
        for number in range(100):
            uids.append(client.publish("q", "x"))
            if number == 10:
                begun.wait(DEADLINE_S)

    with Client(broker.address, reconnect_for_s=DEADLINE_S) as client:
        threads = [threading.Thread(target=publish, args=(client,), daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        begun.wait(DEADLINE_S)
        broker.restart()
        for thread in threads:
            thread.join(2 * DEADLINE_S)

        assert len(set(uids)) == 300
        assert client.stats("q")["ready"] == 300


class Wakes:
    """A listener that remembers, and lets one wait for news."""

    def __init__(self) -> None:
        self.news: asyncio.Queue[str] = asyncio.Queue()

    def awoken(self, queue: str) -> None:
        self.news.put_nowait(f"awoken {queue}")

    def connected(self) -> None:
        self.news.put_nowait("connected")

    def disconnected(self, error: errors.WakeqError) -> None:
        self.news.put_nowait("disconnected")


def test_sleeper_is_told_of_a_restart_and_woken_after_it(start_again: Callable[[], BrokerProcess]) -> None:
    broker = start_again()

    async def work() -> list[str]:
        wakes = Wakes()
        async with AsyncClient(broker.address, reconnect_for_s=math.inf, listener=wakes) as client:
            await client.subscribe("q")
            assert await client.fetch("q") is None
            await client.sleep("q")
            await asyncio.to_thread(broker.restart)
            heard = [await wakes.news.get() for _ in range(3)]
            await client.sleep("q")
            await client.publish("q", "x")
            return [*heard, await wakes.news.get()]

    heard = asyncio.run(asyncio.wait_for(work(), 2 * DEADLINE_S))

    assert heard == ["connected", "disconnected", "connected", "awoken q"]


def test_hanging_broker_is_noticed_by_both_clients(start_broker: StartBroker) -> None:
    broker = start_broker()

    async def publish() -> None:
        async with AsyncClient(broker.address, answer_timeout_s=0.5) as client:
            broker.send_signal(signal.SIGSTOP)
            await client.publish("q", "x")

    try:
        with pytest.raises(errors.Disconnected, match="has not answered"):
            asyncio.run(asyncio.wait_for(publish(), DEADLINE_S))
        broker.send_signal(signal.SIGCONT)
        with Client(broker.address, answer_timeout_s=0.5) as client:
            broker.send_signal(signal.SIGSTOP)
            with pytest.raises(errors.Disconnected, match="has not answered"):
                client.publish("q", "x")
    finally:
        broker.send_signal(signal.SIGCONT)


# The process around it ------------------------------------------------------------------------------------


def test_outage_is_logged_in_a_program_that_configures_no_logging(
    start_again: Callable[[], BrokerProcess], caplog: pytest.LogCaptureFixture
) -> None:
    broker = start_again()
    program = (
        "import sys, wakeq\n"
        "client = wakeq.Client(sys.argv[1], reconnect_for_s=30)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "client.ping()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, broker.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"

    with Client(broker.address, reconnect_for_s=DEADLINE_S) as client:
        broker.restart()
        client.ping()
    _, stderr = process.communicate("go on\n", timeout=DEADLINE_S)

    lost, found = stderr.splitlines()
    assert process.returncode == 0
    assert lost.endswith("; reconnecting")
    assert found == f"connected to {broker.address} again"
    warnings = [record.message for record in caplog.records if record.name == "wakeq.client"]
    assert warnings[-1] == found


def test_forked_child_and_its_parent_both_continue(shared_broker: BrokerProcess) -> None:
    with Client(shared_broker.address) as client:
        client.publish("forks", "before")

        child = os.fork()
        if child == 0:
            client.publish("forks", "the child's")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        client.publish("forks", "the parent's")

        stored = sorted(message.text() for message in client.fetch_many("forks", 10))

    assert os.waitstatus_to_exitcode(status) == 0
    assert stored == ["before", "the child's", "the parent's"]
