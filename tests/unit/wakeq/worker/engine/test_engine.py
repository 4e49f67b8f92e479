"""Tests of engine.py: no message is lost or left leased, and no ready message is missed."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from tests.helpers.loops.driven import in_driven_time
from tests.unit.wakeq.worker.world import World
from wakeq.protocol.errors import Busy, Disconnected, QueueFull, QueueNotFound, StaleLease
from wakeq.protocol.wire.worker import codec as wire
from wakeq.worker import Retry
from wakeq.worker.outcome import Dead, Done, Failed, Released


def test_present_and_later_messages_are_all_handled() -> None:
    async def scenario() -> None:
        world = World("a", "b")
        world.broker.publish("a", "a1", "a2", "a3")
        await world.start()
        await asyncio.sleep(1)
        assert world.broker.sleeping == {"a", "b"}

        world.broker.publish("b", "b1")
        await asyncio.sleep(1)

        assert sorted(world.broker.acked) == ["a1", "a2", "a3", "b1"]
        assert world.broker.sleeping == {"a", "b"}
        assert await world.stop() == 0
        assert world.broker.subscribed == set()

    in_driven_time(scenario)


def test_sleeping_worker_sends_nothing_and_sets_no_timer() -> None:
    async def scenario() -> None:
        world = World()
        await world.start()
        await asyncio.sleep(1)
        fetches = world.broker.fetches

        await asyncio.sleep(3600)

        assert world.broker.fetches == fetches
        assert not world.broker.touched

    in_driven_time(scenario)


def test_lease_of_a_running_handler_is_extended_in_time() -> None:
    async def scenario() -> None:
        world = World(takes_s=300.0, timeout=60)
        world.broker.publish("q", "m1")
        await world.start()
        began_s = world.loop.time()

        await asyncio.sleep(301)

        moments = [0.0, *(at_s - began_s for at_s, _ in world.broker.touched)]
        gaps = [later - earlier for earlier, later in pairwise(moments)]
        # This is before the shortest possible lease ends.
        assert gaps[0] < 5
        assert all(30 < gap < 60 for gap in gaps[1:])
        assert 300 - moments[-1] < 60
        assert world.broker.acked == ["m1"]

    in_driven_time(scenario)


@pytest.mark.parametrize("breaks", [False, True], ids=["online", "offline"])
def test_handler_is_given_up_after_max_run(caplog: pytest.LogCaptureFixture, *, breaks: bool) -> None:
    async def scenario() -> None:
        world = World(takes_s=1000.0, max_run=100, retry=Retry(max=3, delay=7, jitter=0))
        world.broker.publish("q", "m1")
        await world.start()
        await asyncio.sleep(1)
        if breaks:
            world.break_connection()

        await asyncio.sleep(100)

        assert world.pool.abandoned == ["m1"]
        assert world.returned()["m1"] == {"delay": 7, "error": "the handler ran for more than 100 s (max_run)"}
        assert "m1 failed, will be retried in 7 s (delivery 1): the handler ran for more" in caplog.text
        await asyncio.sleep(2000)
        assert world.broker.acked == []

    in_driven_time(scenario)


def test_leases_are_checked_without_a_connection() -> None:
    """Requests made without a connection leave with the next one, which may come just in time."""

    async def scenario() -> None:
        world = World(slots=2, takes_s=300.0, timeout=60)
        world.broker.publish("q", "m1")
        await world.start()
        began_s = world.loop.time()
        await asyncio.sleep(1)
        world.break_connection()

        await asyncio.sleep(200)

        moments = [0.0, *(at_s - began_s for at_s, _ in world.broker.touched)]
        gaps = [later - earlier for earlier, later in pairwise(moments)]
        assert gaps[0] < 5
        assert all(30 < gap < 60 for gap in gaps[1:])
        assert 201 - moments[-1] < 60
        world.engine.connected()
        await asyncio.sleep(100)
        assert world.broker.acked == ["m1"]

    in_driven_time(scenario)


@pytest.mark.parametrize("breaks", [False, True], ids=["online", "offline"])
def test_prefetched_messages_that_cannot_start_soon_are_released(*, breaks: bool) -> None:
    async def scenario() -> None:
        world = World(slots=1, takes_s=0.001)
        world.broker.publish("q", *(f"m{place}" for place in range(20)))
        await world.start()
        await asyncio.sleep(0.003)
        world.pool.takes_s = 60.0
        await asyncio.sleep(0.01)
        if breaks:
            world.break_connection()

        await asyncio.sleep(10)
        world.broker.publish("q", "late")
        await asyncio.sleep(10)

        # Only the message of the running handler.
        assert len(world.broker.leased) == 1
        assert world.returned()
        assert all(options["failed"] is False for options in world.returned().values())
        assert world.broker.ready["q"] == ["late"]

    in_driven_time(scenario)


def test_free_slot_is_filled_again() -> None:
    async def scenario() -> None:
        world = World(takes_s=1.0)
        uids = [f"m{place}" for place in range(10)]
        world.broker.publish("q", *uids)
        await world.start()

        await asyncio.sleep(6)

        assert world.broker.acked == uids

    in_driven_time(scenario)


def test_later_batch_with_an_earlier_check_is_checked_in_time() -> None:
    async def scenario() -> None:
        world = World(takes_s=300.0, timeout=60)
        world.broker.publish("q", "m1")
        await world.start()
        # The lease of m1 was extended, so its next check is far away.
        await asyncio.sleep(10)
        fetched_s = world.loop.time()
        world.broker.publish("q", "m2")

        await asyncio.sleep(5)

        assert [uid for at_s, uid in world.broker.touched if at_s > fetched_s] == ["m2"]

    in_driven_time(scenario)


def test_fetching_begins_after_the_queues_are_subscribed() -> None:
    async def scenario() -> None:
        world = World()

        world.engine.connected()
        await asyncio.sleep(1)

        assert world.broker.fetches == 0

    in_driven_time(scenario)


def test_engine_fetches_nothing_without_a_connection() -> None:
    async def scenario() -> None:
        world = World(takes_s=1.0)
        world.broker.publish("q", "m1", "m2", "m3")
        await world.start()
        await asyncio.sleep(0.5)
        fetches = world.broker.fetches

        world.break_connection()
        await asyncio.sleep(5)

        assert world.broker.fetches == fetches

    in_driven_time(scenario)


def test_outcome_after_a_lost_lease_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        world = World(takes_s=30.0)
        world.broker.publish("q", "m1")
        world.broker.stale.add("m1")
        await world.start()

        await asyncio.sleep(60)

        assert world.broker.acked == []
        assert world.broker.returned == []
        assert len([record for record in caplog.records if "the lease of m1 timed out" in record.message]) == 1

    in_driven_time(scenario)


def test_lost_lease_is_not_extended_again_and_others_are() -> None:
    async def scenario() -> None:
        world = World(slots=2, takes_s=300.0, timeout=60)
        world.broker.publish("q", "kept", "lost")
        world.broker.stale.add("lost")
        await world.start()

        await asyncio.sleep(301)

        named = [uid for _, uid in world.broker.touched]
        assert named.count("lost") == 1
        assert named.count("kept") > 5
        assert world.broker.acked == ["kept"]

    in_driven_time(scenario)


def test_worker_fetches_and_sleeps_again_after_a_reconnect() -> None:
    async def scenario() -> None:
        world = World()
        await world.start()
        await asyncio.sleep(1)

        world.break_connection()
        world.broker.publish("q", "m1")
        await asyncio.sleep(5)
        assert world.broker.acked == []
        world.engine.connected()
        await asyncio.sleep(1)

        assert world.broker.acked == ["m1"]
        assert world.broker.sleeping == {"q"}

    in_driven_time(scenario)


@pytest.mark.parametrize("verb", ["fetch", "sleep"])
@pytest.mark.parametrize("error", [Busy("not now"), Disconnected("broken")])
def test_refused_request_is_repeated(verb: str, error: Any) -> None:
    async def scenario() -> None:
        world = World()
        world.broker.faults[verb] = [error, error]
        await world.start()
        await asyncio.sleep(5)

        world.broker.publish("q", "m1")
        await asyncio.sleep(5)

        assert world.broker.acked == ["m1"]

    in_driven_time(scenario)


@pytest.mark.parametrize("verb", ["ack", "nack"])
def test_outcome_without_an_answer_is_reported_again(verb: str) -> None:
    async def scenario() -> None:
        world = World()
        world.broker.faults[verb] = [Disconnected("broken"), Busy("not now")]
        world.pool.outcomes["m2"] = Failed("no", 3)
        world.broker.publish("q", "m1", "m2")
        await world.start()

        await asyncio.sleep(5)

        assert world.broker.acked == ["m1"]
        assert world.returned() == {"m2": {"delay": 3, "error": "no"}}
        assert await world.stop() == 0

    in_driven_time(scenario)


def test_outcomes_have_commands_of_their_own() -> None:
    async def scenario() -> None:
        world = World(slots=8)
        followup = wire.Followup(qname="next", message="x")
        world.pool.outcomes = {
            "done": Done((followup,)), "failed": Failed("no"), "dead": Dead("never"), "returned": Released("later", 9),
        }  # fmt: skip
        world.broker.publish("q", *world.pool.outcomes)
        await world.start()

        await asyncio.sleep(1)

        assert world.broker.chained == [("done", [followup])]
        assert world.returned() == {
            "failed": {"delay": None, "error": "no"},
            "dead": {"error": "never", "dead": True},
            "returned": {"delay": 9, "error": "later", "failed": False},
        }

    in_driven_time(scenario)


def test_refused_follow_ups_become_a_failure() -> None:
    async def scenario() -> None:
        world = World()
        world.broker.faults["ack"] = [QueueFull("queue next is full")]
        world.pool.outcomes["m1"] = Done((wire.Followup(qname="next", message="x"),))
        world.broker.publish("q", "m1")
        await world.start()

        await asyncio.sleep(1)

        assert world.returned()["m1"]["error"] == "its follow-ups were refused: queue next is full"
        assert world.broker.leased == {}

    in_driven_time(scenario)


def test_stale_acknowledgement_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        world = World()
        world.broker.faults["ack"] = [StaleLease("handed out again")]
        world.broker.publish("q", "m1")
        await world.start()

        await asyncio.sleep(60)

        assert len([record for record in caplog.records if "leases of m1 timed out" in record.message]) == 1
        assert await world.stop() == 0

    in_driven_time(scenario)


def test_failed_extension_is_repeated_before_the_lease_ends() -> None:
    async def scenario() -> None:
        world = World(takes_s=300.0, timeout=60)
        world.broker.publish("q", "m1")
        world.broker.faults["touch"] = [Busy("not now"), Disconnected("no answer"), Busy("not now")]
        await world.start()
        began_s = world.loop.time()

        await asyncio.sleep(20)

        first_s, *others = (at_s - began_s for at_s, _ in world.broker.touched)
        assert 3 < first_s < 7
        assert not others

    in_driven_time(scenario)


def test_unanswered_extension_is_not_sent_twice_at_a_time() -> None:
    async def scenario() -> None:
        world = World(takes_s=3000.0, timeout=60)
        world.broker.publish("q", "m1")
        await world.start()
        await asyncio.sleep(1)
        world.broker.silent = True
        before = len(asyncio.all_tasks())

        await asyncio.sleep(2000)

        assert len(asyncio.all_tasks()) == before + 1

    in_driven_time(scenario)


def test_finally_refused_extension_is_not_repeated() -> None:
    async def scenario() -> None:
        world = World(takes_s=30.0, timeout=60)
        world.broker.publish("q", "m1")
        world.broker.faults["touch"] = [QueueNotFound("deleted")]
        await world.start()

        await asyncio.sleep(20)

        assert world.broker.touched == []

    in_driven_time(scenario)


def test_handler_with_lost_lease_keeps_its_slot_until_it_ends() -> None:
    async def scenario() -> None:
        world = World(slots=1, takes_s=30.0)
        world.broker.publish("q", "lost", "next")
        world.broker.stale.add("lost")
        await world.start()

        await asyncio.sleep(20)
        # A message that it cannot start is left to other workers.
        assert world.broker.fetches == 1
        assert world.broker.ready["q"] == ["next"]
        await asyncio.sleep(45)

        assert world.broker.acked == ["next"]
        assert await world.stop() == 0

    in_driven_time(scenario)


def test_start_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="wakeq.worker")

    async def scenario() -> None:
        await World("a", "b").start()

    in_driven_time(scenario)
    assert "serving a, b of broker.test:2601, 2 at once (thread)" in caplog.text


def test_outage_is_logged_at_its_beginning_and_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="wakeq.worker")

    async def scenario() -> None:
        world = World("a")
        await world.start()
        caplog.clear()
        world.break_connection()
        world.engine.connected()

    in_driven_time(scenario)
    assert caplog.messages == ["connection lost, handlers continue: broken", "connected to broker.test:2601"]
