"""Tests of broker(): the real broker in memory, with a driven clock and faults."""

import asyncio
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pykka
import pytest
from freezegun import freeze_time

from tests.helpers.steps import steps
from wakeq.actors.log.raft_log import RaftLog
from wakeq.actors.runtime import Process
from wakeq.actors.sessions.operator import Question
from wakeq.actors.sessions.operator_mail import Administer
from wakeq.client import Client
from wakeq.client.aio import AsyncClient
from wakeq.protocol.errors import BrokerUnreachable, QueueNotFound, Refused, StaleLease
from wakeq.testing import Broker, broker

Q = "emails"
START_STEPS_MAX = 10_000  # a few milliseconds


@pytest.fixture
def b() -> Iterator[Broker]:
    with broker() as made:
        yield made


# Messages ----------------------------------------------------------------------------------------------------------


def test_memory_broker_works_like_a_client(b: Broker) -> None:
    uid = b.publish(Q, {"to": "ada"}, headers={"trace": "1"})

    message = b.fetch(Q)

    assert isinstance(b, Client)
    assert message is not None
    assert (message.uid, message.json(), message.headers, message.delivery) == (uid, {"to": "ada"}, {"trace": "1"}, 1)
    assert message.ack()
    assert b.stats(Q)["size"] == 0


def test_errors_are_those_of_a_real_broker(b: Broker) -> None:
    with pytest.raises(QueueNotFound):
        b.fetch("nowhere")


def test_brokers_are_independent() -> None:
    with broker() as one, broker() as other:
        one.publish(Q, "of one")

        assert Q not in [queue["qname"] for queue in other.queues()]


# Time --------------------------------------------------------------------------------------------------------------


def test_delay_ends_exactly_when_the_clock_is_driven_so_far(b: Broker) -> None:
    b.publish(Q, "later", delay=60)

    b.advance(59.999)
    early = b.fetch(Q)
    b.advance(0.001)

    assert early is None
    assert b.fetch(Q) is not None


def test_lease_times_out_and_the_message_is_redelivered(b: Broker) -> None:
    b.publish(Q, "work", timeout=30)
    first = b.fetch(Q)
    assert first is not None

    b.advance(31)
    second = b.fetch(Q)

    assert second is not None
    assert (second.uid, second.delivery) == (first.uid, 2)
    with pytest.raises(StaleLease):
        first.ack()


def test_hours_of_retries_end_at_the_dead_letter_queue(b: Broker) -> None:
    b.create_queue("dead")
    retry = {"backoff": "exponential", "base": 60, "max": 1800, "jitter": 0.1}
    b.create_queue(Q, max_deliveries=10, dead_letter="dead", retry=retry)
    b.publish(Q, "hopeless")
    began = b.now()

    deliveries = 0
    while b.stats("dead")["ready"] == 0:
        message = b.fetch(Q, wait=3600)
        assert message is not None
        message.nack(error="no")
        deliveries += 1

    assert deliveries == 10
    # The jitter is always zero here.
    assert b.now() - began == timedelta(minutes=1 + 2 + 4 + 8 + 16 + 4 * 30)


def test_waiting_fetch_advances_the_clock_just_to_the_message(b: Broker) -> None:
    b.publish(Q, "later", delay=3)
    began = b.now()

    found = b.fetch(Q, wait=10)
    when_found = b.now()
    nothing = b.fetch(Q, wait=10)

    assert found is not None
    assert nothing is None
    assert when_found - began == timedelta(seconds=3)
    assert b.now() - when_found == timedelta(seconds=10)


def test_call_without_wait_takes_no_time(b: Broker) -> None:
    began = b.now()

    for _ in range(100):
        b.publish(Q, "m")
        message = b.fetch(Q)
        assert message is not None
        message.touch(60)
        message.ack()

    assert b.now() == began


def test_clock_starts_at_the_present_and_drives_a_frozen_one() -> None:
    with freeze_time("2030-01-01 12:00:00") as frozen, broker(tick=frozen.tick) as b:
        b.publish(Q, "later", delay=60)
        began = b.now()

        b.fetch(Q, wait=90)

        assert began == datetime(2030, 1, 1, 12, tzinfo=UTC)
        assert b.now() == datetime.now(UTC) == began + timedelta(seconds=60)


# Clients -----------------------------------------------------------------------------------------------------------


def test_client_returns_an_independent_client(b: Broker) -> None:
    def signs_up(client: Client) -> None:
        client.publish(Q, {"to": "ada"})

    with b.client() as client:
        signs_up(client)

    assert b.stats(Q)["ready"] == 1


def test_leases_of_a_closed_client_end_by_the_policy_of_the_queue(b: Broker) -> None:
    b.create_queue(Q, on_disconnect="release")
    b.publish(Q, "work")
    client = b.client()
    taken = client.fetch(Q)

    client.close()

    assert taken is not None
    assert b.fetch(Q) is not None


def test_ack_of_a_gone_message_is_false_with_and_without_follow_ups(b: Broker) -> None:
    b.publish(Q, "work")
    message = b.fetch(Q)
    assert message is not None

    answers = [b.ack(Q, message.uid, lease=message.lease, then=[("next", "step")]) for _ in range(2)]

    # The second answer is for the repetition after a lost connection.
    assert answers == [True, False]
    assert b.ack(Q, message.uid) is False
    assert b.stats("next")["published"] == 1


def test_async_client_returns_an_async_client(b: Broker) -> None:
    async def signs_up() -> tuple[str, timedelta]:
        async with b.async_client() as client:
            await client.publish(Q, {"to": "ada"}, delay=60)
            began = b.now()
            message = await client.fetch(Q, wait=90)
            assert message is not None
            async with message:
                return message.json()["to"], b.now() - began

    assert asyncio.run(signs_up()) == ("ada", timedelta(seconds=60))
    assert b.stats(Q)["size"] == b.stats(Q)["leased"] == 0


def test_task_that_only_fetches_does_not_block_others(b: Broker) -> None:
    async def consumes(client: AsyncClient) -> str:
        for _ in range(1_000):
            if message := await client.fetch(Q, wait=10):
                return message.text()
        raise AssertionError("nobody else had a turn")

    async def both() -> str:
        async with b.async_client() as client:
            consumer = asyncio.create_task(consumes(client))
            await asyncio.sleep(0)
            await client.publish(Q, "at last")
            return await consumer

    assert asyncio.run(both()) == "at last"


def test_async_client_survives_a_restart_and_fails_after_a_crash(b: Broker) -> None:
    async def publishes() -> int:
        client = b.async_client()
        await client.publish(Q, "before")
        b.crash()
        with pytest.raises(BrokerUnreachable):
            await client.publish(Q, "to nobody")
        b.restart()
        await client.publish(Q, "after")
        await client.close()
        return int(b.stats(Q)["ready"])

    assert asyncio.run(publishes()) == 2


def test_threads_may_share_a_memory_broker(b: Broker) -> None:
    def publish() -> None:
        with b.client() as client:
            for _ in range(50):
                client.publish(Q, "from a thread")
                b.publish(Q, "from all")

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert b.stats(Q)["ready"] == 400


def test_ref_of_an_actor_may_be_told_by_any_thread_while_another_has_the_turn(b: Broker) -> None:
    """No thread is the broker's between two turns, not even the one that had the last: its turn may have been taken."""
    machine, questions = b._machine, [Question() for _ in range(2)]
    (log,) = pykka.ActorRegistry.get_by_class(RaftLog)

    log.tell(Administer(questions[0], "status"))
    is_untouched = machine.assembly.raft_log.idle
    with machine.turn():
        teller = threading.Thread(target=log.tell, args=(Administer(questions[1], "status"),))
        teller.start()
        teller.join()
        machine.settle()

    assert is_untouched, "the mailbox is that of whoever has the turn"
    assert [question.get()["role"] for question in questions] == ["leader", "leader"]


def test_broker_that_has_ended_leaves_no_actor_in_the_registry() -> None:
    with broker() as made:
        made.restart()
        (log,) = pykka.ActorRegistry.get_by_class(RaftLog)

    assert pykka.ActorRegistry.get_by_class(Process) == []
    with pytest.raises(pykka.ActorDeadError):
        log.tell(Administer(Question(), "status"))


def test_forked_child_is_refused(b: Broker) -> None:
    b.publish(Q, "of the parent")

    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            b.publish(Q, "of the child")
        except BrokerUnreachable:
            status = 3
        finally:
            # The child must never go on with these tests.
            os._exit(status)
    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 3
    assert b.stats(Q)["ready"] == 1


# Faults ------------------------------------------------------------------------------------------------------------


def test_confirmed_messages_survive_a_crash(b: Broker) -> None:
    uid = b.publish(Q, "promised")
    b.publish(Q, "later", delay=60)

    b.crash()
    b.restart()

    message = b.fetch(Q)
    assert message is not None
    assert message.uid == uid
    assert b.stats(Q)["delayed"] == 1


def test_time_goes_on_and_calls_fail_while_the_broker_is_down(b: Broker) -> None:
    b.publish(Q, "later", delay=60)
    client = b.client()

    b.crash()
    for one in (b, client):
        with pytest.raises(BrokerUnreachable, match="restart"):
            one.publish(Q, "to nobody")
    b.advance(60)
    b.restart()

    assert client.fetch(Q) is not None
    assert b.stats(Q)["published"] == 1


def test_timers_of_a_crashed_broker_never_fire(b: Broker) -> None:
    b.publish(Q, "later", delay=60)

    b.crash()

    assert b._machine.time.waiting == 0


def test_lease_survives_a_restart(b: Broker) -> None:
    b.publish(Q, "work")
    message = b.fetch(Q)
    b.advance(1)

    b.restart()

    assert message is not None
    assert b.fetch(Q) is None
    assert message.ack()


def test_full_disk_refuses_publishes_and_accepts_acknowledgements(b: Broker) -> None:
    b.publish(Q, "work")
    message = b.fetch(Q)

    b.disk_full()
    with pytest.raises(Refused, match="disk is full") as caught:
        b.publish(Q, "more")
    b.restart()
    with pytest.raises(Refused, match="disk is full"):
        b.publish(Q, "more")

    assert caught.value.code == "DISK_FULL"
    assert message is not None
    assert message.ack()
    b.disk_full(False)
    assert b.publish(Q, "more")


# Cost --------------------------------------------------------------------------------------------------------------


def test_memory_broker_starts_and_ends_in_few_steps() -> None:
    def once() -> None:
        with broker():
            pass

    once()  # what is imported and made once

    assert steps(once) < START_STEPS_MAX


def test_publishes_before_and_after_a_reconnect_are_all_stored() -> None:
    with broker() as b:
        client = b.client()
        uids = [client.publish(Q, "first")]
        for _ in range(2):
            b.restart()
            uids += [client.publish(Q, "again"), *client.publish_many(Q, ["x", "y"])]

        assert len(set(uids)) == len(uids)
        assert b.stats(Q)["ready"] == len(uids)
