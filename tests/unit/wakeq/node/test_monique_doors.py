"""MoniqueDoors: open while the node leads, restarted after a failure, and explicit about an invalid config.json."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import zmq
import zmq.asyncio

from tests.helpers.loops.both import Run
from tests.helpers.monique.component import config_json, packed
from tests.helpers.monique.open_doors import FOLLOWS, Place, doors, until
from tests.helpers.network.ports import free_port
from wakeq.config import monique as monique_config
from wakeq.http.families import MONIQUE
from wakeq.net.zmq_ports import TAKEN_MAX
from wakeq.node import monique_doors as module
from wakeq.protocol.errors import BadSettings
from wakeq.protocol.queue.outcomes import Refusal


def test_doors_close_when_leadership_ends_and_reopen_when_it_returns(run: Run, tmp_path: Path) -> None:
    async def test() -> None:
        async with doors(config_file=config_json(tmp_path / "config.json")) as (place, addresses):
            client = await place.client()
            assert await client.ask("ping", 1) == {"command": "pong", "data": 1}

            place.refusal = FOLLOWS
            place.doors.tick()

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


def test_ports_are_closed_after_any_failure_to_open(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that stays open would look like another scheduler at the next attempt."""

    def fails(*_: Any) -> None:
        raise RuntimeError("a bug")

    async def test() -> None:
        async with doors(config_file=config_json(tmp_path / "config.json", sum_it=free_port())) as (place, _):
            place.refusal = FOLLOWS
            place.doors.tick()
            place.refusal = None
            with monkeypatch.context() as patched:
                patched.setattr(place.doors, "_open_controller", fails)
                with pytest.raises(RuntimeError):
                    place.doors.tick()
            assert place.doors._zmq is None

            place.doors.tick()

            assert await (await place.client()).ask("ping", 1) == {"command": "pong", "data": 1}

    run(test)


def test_doors_stay_open_during_a_short_loss_of_the_majority(run: Run) -> None:
    async def test() -> None:
        async with doors() as (place, _):
            client = await place.client()
            place.refusal = Refusal("NO_QUORUM", "too few of the other nodes answer")
            place.doors.tick()

            assert await client.ask("ping", 1) == {"command": "pong", "data": 1}

    run(test)


def test_doors_stay_open_while_a_transfer_may_still_fail(run: Run, tmp_path: Path) -> None:
    async def test() -> None:
        async with doors(config_file=config_json(tmp_path / "config.json")) as (place, _):
            client, ports = await place.client(), place.doors._zmq
            # A successor is preparing to lead.
            place.refusal = Refusal("NOT_LEADER", "no node leads at this moment")
            place.doors.tick()
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await place.client()

            place.refusal = None
            place.doors.tick()

            assert await client.ask("ping", 1) == {"command": "pong", "data": 1}
            assert place.doors._zmq is ports

    run(test)


def test_doors_stay_closed_before_the_node_leads(run: Run) -> None:
    async def test() -> None:
        async with doors() as (place, _):
            place.refusal = FOLLOWS
            place.doors.tick()
            place.refusal = Refusal("NOT_LEADER", "its first entry is not applied")
            place.doors.tick()

            assert place.doors._supervisor is None

    run(test)


def test_bridge_started_during_a_shutdown_gives_no_task(run: Run, tmp_path: Path) -> None:
    path = config_json(tmp_path / "config.json", a_b=free_port())

    async def test() -> None:
        async with doors(config_file=path, routes={"a_b": "tasks"}) as (place, _):
            before = place.doors._givers["a_b"]
            place.doors.stop_reading()

            place.doors._exchange.tell("nothing that it knows")

            await until(lambda: place.doors._givers["a_b"] is not before)
            await until(lambda: getattr(place.doors._givers["a_b"], "_rests", False))

    run(test)


@pytest.mark.parametrize("victim", ["_exchange", "_components"])
def test_failure_of_an_actor_restarts_all_and_disconnects_clients(run: Run, tmp_path: Path, victim: str) -> None:
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


def test_messages_lost_in_a_failed_actor_do_not_block_later_reads(run: Run, tmp_path: Path) -> None:
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
    """Check that a message from a WebSocket client arrives over ZeroMQ."""
    client = await place.client()
    with zmq.Context() as context, context.socket(zmq.SUB) as sub:
        sub.connect(f"tcp://{addresses['scheduler-out']}")
        sub.subscribe(b"")
        tag, message = packed(spec="a_b", type="data")
        async with asyncio.timeout(10):
            while not sub.poll(0):
                await client.ask("push_to_mq", {"tag": tag, "message": message})
        assert sub.recv_multipart() == [tag, message]


def test_components_receive_messages_published_just_before_a_shutdown(run: Run, tmp_path: Path) -> None:
    """A published message was acknowledged, so no sender would repeat it."""
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


def test_messages_sent_by_components_are_accepted_during_a_shutdown(run: Run, tmp_path: Path) -> None:
    """The component believes that its message was delivered."""

    async def test() -> None:
        async with doors(config_file=config_json(tmp_path / "config.json")) as (place, addresses):
            with zmq.Context() as context, context.socket(zmq.PUSH) as push:
                push.connect(f"tcp://{addresses['scheduler-in']}")
                push.send_multipart(packed(spec="a_b", type="data"))
                assert place.doors._zmq is not None
                # The loop must not run meanwhile, or it would read the message.
                while not place.doors._zmq._pulls()[0]._socket.poll(10):
                    pass

                place.doors.stop_reading()

                await until(lambda: place.doors._counters.taken["zeromq"] == 1)

    run(test)


def test_controllers_added_to_the_file_are_opened(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "READ_AGAIN_S", 0.02)
    path = config_json(tmp_path / "config.json")

    async def test() -> None:
        async with doors(config_file=path) as (place, _):
            path.write_text("{")
            await until(lambda: "the controllers stay unchanged" in caplog.text)
            port = free_port()
            config_json(path, a_b=port)
            await until(lambda: "a_b" in place.doors._givers)
            place.refusal = FOLLOWS
            place.doors.tick()
            # From here on the broker learns nothing from the file.
            path.write_text("{")
            place.refusal = None
            place.doors.tick()

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


def test_metrics_survive_a_change_of_leadership(run: Run, tmp_path: Path) -> None:
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
            place.doors.tick()
            figures = figures_of(place)
            assert figures["wakeq_monique_messages_total", "zeromq"] == 1
            assert figures["wakeq_monique_dropped_total", "from_component"] == 1
            assert figures["wakeq_monique_pushed_total", ()] == 1
            assert figures["wakeq_monique_subscriptions", ()] == 0

    run(test)


def figures_of(place: Place) -> dict[Any, Any]:
    """Return the values of all samples by name and label."""
    return {(sample.name, *(sample.labels or ((),))): sample.value for sample in place.doors.samples()}


def test_port_still_held_by_the_previous_leader_is_tried_again(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()

    async def test() -> None:
        async with doors(config_file=config_json(tmp_path / "config.json", a_b=port)) as (place, _):
            place.refusal = FOLLOWS
            place.doors.tick()
            with zmq.Context() as context, context.socket(zmq.PUSH) as other:
                other.bind(f"tcp://127.0.0.1:{port}")
                place.refusal = None
                place.doors.tick()
                assert "is another scheduler there?; trying again" in caplog.text
                with pytest.raises(aiohttp.WSServerHandshakeError):
                    await place.client()
            async with asyncio.timeout(10):
                while place.doors._supervisor is None:
                    place.doors.tick()
                    await asyncio.sleep(0.01)

            assert await (await place.client()).ask("ping", 1) == {"command": "pong", "data": 1}

    run(test)


def test_port_in_use_is_reported(tmp_path: Path) -> None:
    async def test() -> None:
        async with doors(config_file=config_json(tmp_path / "one.json")) as (_, addresses):
            port = int(addresses["scheduler-in"].rpartition(":")[2])
            async with doors(config_file=config_json(tmp_path / "other.json", a_b=port)):
                pass

    with pytest.raises(BadSettings, match="is another scheduler there"):
        asyncio.run(test())


def test_scheduler_with_only_one_end_is_refused(tmp_path: Path) -> None:
    ports = {"host": "127.0.0.1", "comport": 0, "techport": 0}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"deploy": {"monique": {"scheduler-in": ports}}}))

    async def test() -> None:
        async with doors(config_file=path):
            pass

    with pytest.raises(BadSettings, match="components need both"):
        asyncio.run(test())


@pytest.mark.parametrize("exposed", ["scheduler-in", "scheduler-out", "controller", "websocket"])
def test_doors_reachable_by_other_machines_need_insecure(tmp_path: Path, exposed: str) -> None:
    ends = {name: {"host": "127.0.0.1", "comport": 0, "techport": 0} for name in ("scheduler-in", "scheduler-out")}
    deploy = {"websocket": {"host": "127.0.0.1", "port": 0}, "controller": {"host": "127.0.0.1"}}
    # Controllers listen on the host of the scheduler, if there is one.
    if exposed != "controller":
        deploy |= ends
    deploy[exposed]["host"] = "*"
    path = tmp_path / "config.json"
    params = {"mq_controller": {"connections": {"a_b": 0}}}
    path.write_text(json.dumps({"deploy": {"monique": deploy}, "params": params}))

    async def test(*, insecure: bool) -> None:
        async with doors(config_file=path, insecure=insecure):
            pass

    with pytest.raises(BadSettings, match="which other machines reach"):
        asyncio.run(test(insecure=False))
    asyncio.run(test(insecure=True))


def test_controller_whose_queue_another_spec_shares_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "READ_AGAIN_S", 0.02)
    path = config_json(tmp_path / "config.json")
    routes = {"a_b": "tasks", "c_d": "tasks", "e_f": "others"}

    async def test() -> None:
        async with doors(config_file=path, routes=routes) as (place, _):
            config_json(path, a_b=free_port(), e_f=free_port())
            await until(lambda: "e_f" in place.doors._givers)
            assert "a_b" not in place.doors._givers
        async with doors(config_file=path, routes=routes):
            pass

    with pytest.raises(BadSettings, match="give each spec a queue of its own"):
        run(test)
    assert "stores tasks of c_d on tasks too" in caplog.text


def test_missing_pyzmq_refuses_only_zeromq_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monique_config, "find_spec", lambda name: None)

    async def test(**settings: Any) -> None:
        async with doors(**settings) as (place, _):
            assert await (await place.client()).ask("ping", 1) == {"command": "pong", "data": 1}

    asyncio.run(test())
    with pytest.raises(BadSettings, match=r"pip install 'wakeq\[monique\]'"):
        asyncio.run(test(config_file=config_json(tmp_path / "config.json")))
