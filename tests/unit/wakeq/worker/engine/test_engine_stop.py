"""Tests of engine.py: a stop from outside, and the end of a drain or a limit."""

import asyncio
from typing import Any

import pytest

from tests.helpers.loops.driven import in_driven_time
from tests.unit.wakeq.worker.world import World
from wakeq.protocol.errors import Disconnected
from wakeq.worker.outcome import Dead, Done, Failed

# Stop from outside ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", range(40))
@pytest.mark.parametrize("takes_s", [0.0, 0.5])
def test_stop_at_any_step_leaves_no_message_behind(turns: int, takes_s: float) -> None:
    async def scenario() -> None:
        world = World("a", "b", takes_s=takes_s)
        world.broker.publish("a", "a1", "a2", "a3")
        world.broker.publish("b", "b1", "b2")
        starting = asyncio.ensure_future(world.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        await starting
        started = list(world.pool.started)

        left = await world.stop()

        assert left == 0
        assert world.pool.started == started
        assert world.broker.leased == {}
        ended = [*world.broker.acked, *world.returned(), *world.broker.ready["a"], *world.broker.ready["b"]]
        assert sorted(ended) == ["a1", "a2", "a3", "b1", "b2"]
        assert all(options["failed"] is False for options in world.returned().values())
        assert set(world.broker.acked) == set(world.pool.started)

    in_driven_time(scenario)


def test_messages_of_handlers_that_do_not_end_in_time_are_released_with_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        world = World(takes_s=100.0)
        world.broker.publish("q", "m1", "m2")
        await world.start()
        await asyncio.sleep(1)
        began_s = world.loop.time()

        left = await world.stop(grace_s=25)

        assert left == 2
        assert 25 <= world.loop.time() - began_s < 26
        assert world.pool.abandoned == ["m1", "m2"] or world.pool.abandoned == ["m2", "m1"]
        assert world.returned().keys() == {"m1", "m2"}
        assert world.returned()["m1"]["failed"] is False
        assert "before the handler ended" in world.returned()["m1"]["error"]

    in_driven_time(scenario)
    (text,) = (text for text in caplog.messages if text.startswith("not waiting any longer; released: "))
    assert "m1 of q" in text
    assert "m2 of q" in text


def test_handlers_that_end_during_the_grace_period_are_acknowledged() -> None:
    async def scenario() -> None:
        world = World(takes_s=10.0)
        world.broker.publish("q", "m1", "m2", "m3")
        await world.start()
        await asyncio.sleep(1)
        began_s = world.loop.time()

        left = await world.stop(grace_s=25)

        assert left == 0
        assert sorted(world.broker.acked) == ["m1", "m2"]
        assert world.broker.ready["q"] == ["m3"]
        assert 9 <= world.loop.time() - began_s < 10

    in_driven_time(scenario)


def test_second_signal_ends_the_grace_period() -> None:
    async def scenario() -> None:
        world = World(takes_s=100.0)
        world.broker.publish("q", "m1")
        await world.start()
        await asyncio.sleep(1)
        began_s = world.loop.time()
        world.loop.call_later(3, world.hurry.set)

        left = await world.stop(grace_s=25)

        assert left == 1
        assert 3 <= world.loop.time() - began_s < 4
        assert world.returned().keys() == {"m1"}

    in_driven_time(scenario)


def test_silent_broker_is_not_waited_for_for_ever_at_a_stop() -> None:
    async def scenario() -> None:
        world = World(takes_s=1.0)
        world.broker.publish("q", "m1")
        await world.start()
        await asyncio.sleep(0.5)
        world.broker.silent = True
        began_s = world.loop.time()

        left = await world.stop(grace_s=25)

        assert left == 1
        assert world.loop.time() - began_s < 10

    in_driven_time(scenario)


@pytest.mark.parametrize("after_s", [None, 1.0], ids=["lost before the stop", "lost during the stop"])
def test_stop_without_a_connection_and_without_messages_takes_no_time(after_s: float | None) -> None:
    async def scenario() -> None:
        world = World()
        await world.start()
        await asyncio.sleep(0.5)
        world.broker.silent = True
        if after_s is None:
            world.break_connection()
        else:
            world.loop.call_later(after_s, world.break_connection)
        began_s = world.loop.time()

        left = await world.stop(grace_s=25)

        assert left == 0
        assert world.loop.time() - began_s == pytest.approx(after_s or 0.0, abs=0.1)

    in_driven_time(scenario)


def test_stop_without_a_connection_still_waits_to_report_outcomes() -> None:
    async def scenario() -> None:
        world = World(takes_s=1.0)
        world.broker.publish("q", "m1")
        await world.start()
        await asyncio.sleep(0.5)
        world.broker.faults["ack"] = [Disconnected("broken")]
        world.break_connection()

        left = await world.stop(grace_s=25)

        assert left == 0
        assert world.broker.acked == ["m1"]

    in_driven_time(scenario)


def test_stop_releases_prefetched_messages_at_once() -> None:
    async def scenario() -> None:
        world = World(slots=1, takes_s=0.001)
        world.broker.publish("q", *(f"m{place}" for place in range(20)))
        await world.start()
        await asyncio.sleep(0.003)
        world.pool.takes_s = 2.0
        await asyncio.sleep(0.5)
        stopping = asyncio.ensure_future(world.stop())

        await asyncio.sleep(0.1)

        # Only the message of the running handler.
        assert len(world.broker.leased) == 1
        assert await stopping == 0
        assert world.broker.leased == {}

    in_driven_time(scenario)


def test_handler_that_ends_at_the_last_moment_counts_as_ended() -> None:
    async def scenario() -> None:
        world = World(takes_s=100.0)
        world.broker.publish("q", "m1")
        await world.start()
        await asyncio.sleep(1)
        (job,) = world.engine._leases
        # The loop was woken and has not run `gather` yet.
        world.engine._finished._woken = True
        world.engine._finished.put(job, Done(), 1.0)

        left = await world.stop(grace_s=0)

        assert left == 0
        assert world.broker.acked == ["m1"]

    in_driven_time(scenario)


def test_handler_with_lost_lease_is_waited_for_at_a_stop_until_max_run() -> None:
    async def scenario() -> None:
        world = World(slots=2, takes_s=1000.0, max_run=100)
        world.broker.publish("q", "lost")
        world.broker.stale.add("lost")
        await world.start()
        await asyncio.sleep(99)
        assert world.pool.abandoned == []

        left = await world.stop(grace_s=25)

        assert left == 0
        assert world.pool.abandoned == ["lost"]
        assert world.broker.returned == []

    in_driven_time(scenario)


# Handlers that can be ended -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends_after_s", "hurried", "given_back_s"),
    [(2.0, False, 2.0), (1000.0, False, 5.5), (0.2, True, 0.2), (1000.0, True, 1.0)],
)
def test_handler_that_can_be_ended_is_gone_before_its_message_is_released(
    ends_after_s: float, hurried: bool, given_back_s: float
) -> None:
    async def scenario() -> None:
        world = World(takes_s=10_000.0)
        world.pool.ends_after_s = ends_after_s
        world.pool.outcomes["m1"] = Dead("a bad end")
        world.broker.publish("q", "m1")
        await world.start()
        await asyncio.sleep(1)
        if hurried:
            world.hurry.set()
        began_s = world.loop.time()

        left = await world.stop(grace_s=0)

        assert left == 1
        assert world.loop.time() - began_s == pytest.approx(given_back_s, abs=0.1)
        # The handler was cut short, so this is no failure.
        assert world.returned()["m1"]["failed"] is False

    in_driven_time(scenario)


def test_ending_handler_is_abandoned_again_soon_in_an_urgent_stop() -> None:
    async def scenario() -> None:
        world = World(takes_s=10_000.0)
        world.pool.ends_after_s = 1000.0
        world.broker.publish("q", "m1")
        await world.start()
        await asyncio.sleep(1)
        stopping = asyncio.ensure_future(world.stop(grace_s=0))
        await asyncio.sleep(1)
        assert world.pool.abandoned == ["m1"]

        world.hurry.set()
        await asyncio.sleep(0.1)

        assert world.pool.abandoned == ["m1", "m1"]
        assert await stopping == 1

    in_driven_time(scenario)


def test_handler_that_returns_after_all_is_acknowledged() -> None:
    async def scenario() -> None:
        world = World(takes_s=10_000.0)
        world.pool.ends_after_s = 1.0
        world.broker.publish("q", "m1")
        await world.start()
        await asyncio.sleep(1)

        await world.stop(grace_s=0)

        assert world.broker.acked == ["m1"]

    in_driven_time(scenario)


def test_worker_stops_when_a_pool_is_stuck_after_max_run(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        world = World(takes_s=10**6, max_run=60, mode="thread")
        world.broker.publish("q", "m1", "m2")
        await world.start()
        await asyncio.sleep(1)
        world.pool.is_stuck = True
        assert not world.engine.done.is_set()

        await asyncio.sleep(60)

        assert world.engine.done.is_set()
        assert await world.stop() == 1

    in_driven_time(scenario)
    assert "has to be started again" in caplog.text
    assert "goes on, even beside the next try" in caplog.text


def test_worker_stops_when_a_stuck_pool_starts_nothing() -> None:
    """An abandoned handler may block the coroutines of a pool, and this may show only afterwards."""

    async def scenario() -> None:
        world = World(slots=2, takes_s=10**6)
        world.pool.slots = 0
        world.broker.publish("q", "m1")
        await world.start()
        await asyncio.sleep(1)
        world.pool.is_stuck = True

        async with asyncio.timeout(60):
            await world.engine.done.wait()

        assert await world.stop() == 1
        # The message is not fetched again.
        assert [uid for uid, _ in world.broker.returned] == ["m1"]

    in_driven_time(scenario)


# Drain and limit ------------------------------------------------------------------------------------------------------


def test_drain_ends_when_all_messages_are_handled_and_confirmed() -> None:
    async def scenario() -> None:
        world = World("a", "b", takes_s=1.0, drain=True)
        world.broker.publish("a", "a1", "a2", "a3")
        world.broker.publish("b", "b1")
        world.broker.faults["ack"] = [Disconnected("broken")]
        await world.start()

        await world.engine.done.wait()

        assert sorted(world.broker.acked) == ["a1", "a2", "a3", "b1"]
        assert world.engine.handled == 4
        assert await world.stop() == 0

    in_driven_time(scenario)


def test_drain_of_empty_queues_ends_at_once() -> None:
    async def scenario() -> None:
        world = World("a", "b", drain=True)
        await world.start()

        await world.engine.done.wait()

        assert world.engine.handled == 0
        assert world.broker.fetches == 2

    in_driven_time(scenario)


@pytest.mark.parametrize("woken", [True, False], ids=["woken", "another worker is woken"])
def test_drain_waits_for_returned_messages_and_follow_ups(woken: bool) -> None:
    async def scenario() -> None:
        world = World("a", "b", takes_s=1.0, drain=True)
        world.broker.awoken = world.broker.awoken if woken else lambda _queue: None
        world.pool.outcomes["a1"] = Failed("no", 0)
        world.broker.publish("a", "a1")
        nack_many, ack_many = world.broker.nack_many, world.broker.ack_many

        async def come_back(messages: Any, **options: Any) -> Any:
            world.pool.outcomes.clear()
            settled = await nack_many(messages, **options)
            world.broker.publish("a", "a1")
            return settled

        async def follow(messages: Any) -> Any:
            settled = await ack_many(messages)
            if messages[0].uid == "a1":
                world.broker.publish("b", "b1")
            return settled

        world.broker.nack_many, world.broker.ack_many = come_back, follow  # type: ignore[method-assign]
        await world.start()

        await world.engine.done.wait()

        assert world.broker.acked == ["a1", "b1"]
        assert world.engine.handled == 3

    in_driven_time(scenario)


def test_drain_ends_with_a_handler_whose_lease_was_lost() -> None:
    async def scenario() -> None:
        world = World(takes_s=30.0, drain=True)
        world.broker.publish("q", "m1")
        world.broker.stale.add("m1")
        await world.start()

        await world.engine.done.wait()

        assert world.broker.acked == []

    in_driven_time(scenario)


@pytest.mark.parametrize("takes_s", [0.0, 1.0])
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_limit_bounds_the_fetched_messages(limit: int, takes_s: float) -> None:
    async def scenario() -> None:
        world = World("a", "b", takes_s=takes_s, limit=limit)
        world.broker.publish("a", "a1", "a2", "a3")
        await world.start()
        await asyncio.sleep(10)
        assert world.engine.done.is_set() == (limit < 3)
        world.broker.publish("b", "b1", "b2", "b3")

        await world.engine.done.wait()

        assert len(world.broker.acked) == world.engine.handled == limit
        assert len(world.broker.ready["a"] + world.broker.ready["b"]) == 6 - limit
        assert await world.stop() == 0

    in_driven_time(scenario)
