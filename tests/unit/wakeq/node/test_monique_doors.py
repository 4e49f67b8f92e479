"""MoniqueDoors: open while the node leads, and made anew when something fails."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import zmq
import zmq.asyncio

from tests.helpers.both_loops import Run
from tests.helpers.monique_component import config_json, packed
from tests.helpers.open_doors import FOLLOWS, Place, doors, until
from tests.helpers.ports import free_port
from wakeq.actors.mail import Refusal
from wakeq.http.families import MONIQUE
from wakeq.net.zmq_ports import TAKEN_MAX
from wakeq.node import monique_doors as module


def test_a_node_that_leads_no_longer_closes_what_it_has_and_opens_it_again(run: Run, tmp_path: Path) -> None:
    async def test() -> None:
        async with doors(config_file=config_json(tmp_path / "config.json")) as (place, addresses):
            client = await place.client()
            assert await client.ask("ping", 1) == {"command": "pong", "data": 1}

            place.refusal = FOLLOWS
            place.doors.look()

            assert (await client.closed())[1] == "another node leads; connect to it"
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await place.client()
            host, _, port = addresses["scheduler-in"].rpartition(":")
            with pytest.raises(OSError, match="111"):
                await asyncio.open_connection(host, int(port))

            place.refusal = None
            assert await (await place.client()).ask("ping", 1) == {"command": "pong", "data": 1}
            assert place.failures == []

    run(test)


def test_ports_are_let_go_of_whatever_goes_wrong_when_they_are_opened(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they would seem to be another scheduler's from then on."""

    def fails(*_: Any) -> None:
        raise RuntimeError("a bug")

    async def test() -> None:
        async with doors(config_file=config_json(tmp_path / "config.json", sum_it=free_port())) as (place, _):
            place.refusal = FOLLOWS
            place.doors.look()
            place.refusal = None
            with monkeypatch.context() as patched:
                patched.setattr(place.doors, "_open_controller", fails)
                with pytest.raises(RuntimeError):
                    place.doors.look()
            assert place.doors._zmq is None

            place.doors.look()

            assert await (await place.client()).ask("ping", 1) == {"command": "pong", "data": 1}

    run(test)


def test_too_few_nodes_for_a_moment_are_no_reason_to_close(run: Run) -> None:
    async def test() -> None:
        async with doors() as (place, _):
            client = await place.client()
            place.refusal = Refusal("NO_QUORUM", "too few of the other nodes answer")
            place.doors.look()

            assert await client.ask("ping", 1) == {"command": "pong", "data": 1}

    run(test)


def test_a_hand_over_that_may_still_fail_is_no_reason_to_close(run: Run, tmp_path: Path) -> None:
    async def test() -> None:
        async with doors(config_file=config_json(tmp_path / "config.json")) as (place, _):
            client, ports = await place.client(), place.doors._zmq
            place.refusal = Refusal("NOT_LEADER", "no node leads at this moment")  # a successor gets ready
            place.doors.look()
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await place.client()

            place.refusal = None
            place.doors.look()

            assert await client.ask("ping", 1) == {"command": "pong", "data": 1}
            assert place.doors._zmq is ports

    run(test)


def test_who_does_not_lead_yet_opens_nothing(run: Run) -> None:
    async def test() -> None:
        async with doors() as (place, _):
            place.refusal = FOLLOWS
            place.doors.look()
            place.refusal = Refusal("NOT_LEADER", "its first entry is not applied")
            place.doors.look()

            assert place.doors._supervisor is None

    run(test)


def test_a_bridge_that_is_made_while_the_broker_stops_gives_nothing(run: Run, tmp_path: Path) -> None:
    path = config_json(tmp_path / "config.json", a_b=free_port())

    async def test() -> None:
        async with doors(config_file=path, routes={"a_b": "tasks"}) as (place, _):
            before = place.doors._takers["a_b"]
            place.doors.stop_reading()

            place.doors._exchange.tell("nothing that it knows")

            await until(lambda: place.doors._takers["a_b"] is not before)
            await until(lambda: getattr(place.doors._takers["a_b"], "_rests", False))

    run(test)


@pytest.mark.parametrize("victim", ["_exchange", "_components"])
def test_if_one_of_them_fails_all_are_made_anew_and_clients_come_again(run: Run, tmp_path: Path, victim: str) -> None:
    async def test() -> None:
        async with doors(config_file=config_json(tmp_path / "config.json")) as (place, addresses):
            client = await place.client()
            await client.ask("ping", 1)
            before = place.doors._exchange

            getattr(place.doors, victim).tell("nothing that it knows")

            assert "connect again" in (await client.closed())[1]
            await until(lambda: place.doors._exchange is not before)
            await serves_both(place, addresses)
            assert place.failures == []

    run(test)


def test_what_was_told_to_those_who_failed_keeps_nobody_from_being_read(run: Run, tmp_path: Path) -> None:
    async def test() -> None:
        async with doors(config_file=config_json(tmp_path / "config.json")) as (place, addresses):
            zeromq, before = place.doors._zmq, place.doors._exchange
            assert zeromq is not None
            for port in zeromq._pulls():
                port._under_way = TAKEN_MAX

            before.tell("nothing that it knows")
            await until(lambda: place.doors._exchange is not before)

            with zmq.Context() as context, context.socket(zmq.PUSH) as push, context.socket(zmq.SUB) as sub:
                push.connect(f"tcp://{addresses['scheduler-in']}")
                sub.connect(f"tcp://{addresses['scheduler-out']}")
                sub.subscribe(b"")
                async with asyncio.timeout(10):
                    while not sub.poll(0):
                        push.send_multipart(packed(spec="a_b", type="data"), zmq.NOBLOCK)
                        await asyncio.sleep(0.005)
                push.linger = 0

    run(test)


async def serves_both(place: Place, addresses: dict[str, str]) -> None:
    """What comes by WebSocket is heard over ZeroMQ."""
    client = await place.client()
    with zmq.Context() as context, context.socket(zmq.SUB) as sub:
        sub.connect(f"tcp://{addresses['scheduler-out']}")
        sub.subscribe(b"")
        tag, message = packed(spec="a_b", type="data")
        async with asyncio.timeout(10):
            while not sub.poll(0):
                await client.ask("push_to_mq", {"tag": tag, "message": message})
        assert sub.recv_multipart() == [tag, message]


def test_components_hear_what_was_published_just_before_a_clean_stop(run: Run, tmp_path: Path) -> None:
    """What was published is acknowledged: nobody else says it again."""
    path = config_json(tmp_path / "config.json")

    async def test(sub: Any) -> None:
        async with doors(config_file=path) as (place, addresses):
            sub.connect(f"tcp://{addresses['scheduler-out']}")
            sub.subscribe(b"")
            publisher = place.doors._zmq.layers.communication  # type: ignore[union-attr]
            async with asyncio.timeout(10):
                while not sub.poll(0):
                    publisher.publish([(b"probe", b"")])
                    await asyncio.sleep(0.005)
            publisher.publish([(b"tag", bytes(100_000)) for _ in range(100)])

    with zmq.Context() as context, context.socket(zmq.SUB) as sub:
        run(lambda: test(sub))
        heard = 0
        while sub.poll(500):
            heard += sub.recv_multipart()[0] == b"tag"
    assert heard == 100


def test_what_components_have_sent_is_taken_when_the_broker_stops(run: Run, tmp_path: Path) -> None:
    """Whoever sent it believes that it was delivered."""

    async def test() -> None:
        async with doors(config_file=config_json(tmp_path / "config.json")) as (place, addresses):
            with zmq.Context() as context, context.socket(zmq.PUSH) as push:
                push.connect(f"tcp://{addresses['scheduler-in']}")
                push.send_multipart(packed(spec="a_b", type="data"))
                assert place.doors._zmq is not None
                while not place.doors._zmq._pulls()[0]._socket.poll(10):  # and the loop does not run meanwhile
                    pass

                place.doors.stop_reading()

                await until(lambda: place.doors._tally.taken["zeromq"] == 1)

    run(test)


def test_controllers_that_are_added_to_the_file_are_opened(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "READ_AGAIN_S", 0.02)
    path = config_json(tmp_path / "config.json")

    async def test() -> None:
        async with doors(config_file=path) as (place, _):
            path.write_text("{")
            await until(lambda: "the controllers stay as they are" in caplog.text)
            port = free_port()
            config_json(path, a_b=port)
            await until(lambda: "a_b" in place.doors._takers)
            place.refusal = FOLLOWS
            place.doors.look()
            path.write_text("{")  # from here on nothing is learned from it
            place.refusal = None
            place.doors.look()

            with zmq.Context() as context, context.socket(zmq.PULL) as pull:
                pull.connect(f"tcp://127.0.0.1:{port}")
                task = packed(spec="a_b", type="config")
                client = await place.client()
                await client.ask("push_to_mq", {"tag": task[0], "message": task[1]})
                async with asyncio.timeout(10):
                    while not pull.poll(0):
                        await asyncio.sleep(0.005)
                assert pull.recv_multipart() == task

    run(test)


def test_what_the_metrics_say_is_what_happened_whoever_led_meanwhile(run: Run, tmp_path: Path) -> None:
    port = free_port()

    async def test() -> None:
        async with doors(config_file=config_json(tmp_path / "config.json", a_b=port)) as (place, addresses):
            figures = figures_of(place)
            assert figures["wakeq_monique_messages_total", "websocket"] == 0
            assert {name for name, *_ in figures} == {family.name for family in MONIQUE}

            client = await place.client()
            await client.ask("subscribe", [{"spec": "a_b", "type": "*"}])
            with zmq.Context() as context, context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as component:
                pull.connect(f"tcp://127.0.0.1:{port}")
                await until(lambda: figures_of(place)["wakeq_monique_components", ()] == 1)
                component.connect(f"tcp://{addresses['scheduler-in']}")
                component.send_multipart([b"no transfer"])
                component.send_multipart(packed(spec="a_b", type="data"))
                assert (await client.take())["command"] == "pushed_from_mq"
                component.close(linger=0)
                pull.close(linger=0)
                await until(lambda: figures_of(place)["wakeq_monique_components", ()] == 0)

            assert figures_of(place)["wakeq_monique_subscriptions", ()] > 1
            place.refusal = FOLLOWS
            place.doors.look()
            figures = figures_of(place)
            assert figures["wakeq_monique_messages_total", "zeromq"] == 1
            assert figures["wakeq_monique_dropped_total", "from_component"] == 1
            assert figures["wakeq_monique_pushed_total", ()] == 1
            assert figures["wakeq_monique_subscriptions", ()] == 0

    run(test)


def figures_of(place: Place) -> dict[Any, Any]:
    """By name and label."""
    return {(sample.name, *(sample.labels or ((),))): sample.value for sample in place.doors.samples()}


def test_a_port_that_the_leader_before_still_has_is_tried_again(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()

    async def test() -> None:
        async with doors(config_file=config_json(tmp_path / "config.json", a_b=port)) as (place, _):
            place.refusal = FOLLOWS
            place.doors.look()
            with zmq.Context() as context, context.socket(zmq.PUSH) as other:
                other.bind(f"tcp://127.0.0.1:{port}")
                place.refusal = None
                place.doors.look()
                assert "is another scheduler there?; trying again" in caplog.text
                with pytest.raises(aiohttp.WSServerHandshakeError):
                    await place.client()
            async with asyncio.timeout(10):
                while place.doors._supervisor is None:
                    place.doors.look()
                    await asyncio.sleep(0.01)

            assert await (await place.client()).ask("ping", 1) == {"command": "pong", "data": 1}

    run(test)
