"""MoniqueDoors and a config.json that cannot be followed: what is refused, and in which words."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.both_loops import Run
from tests.helpers.monique_component import config_json
from tests.helpers.open_doors import doors, until
from tests.helpers.ports import free_port
from wakeq.config import monique as monique_config
from wakeq.node import monique_doors as module
from wakeq.protocol.errors import BadSettings


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    async def test() -> None:
        async with doors(config_file=config_json(tmp_path / "one.json")) as (_, addresses):
            port = int(addresses["scheduler-in"].rpartition(":")[2])
            async with doors(config_file=config_json(tmp_path / "other.json", a_b=port)):
                pass

    with pytest.raises(BadSettings, match="is another scheduler there"):
        asyncio.run(test())


def test_half_a_scheduler_is_refused(tmp_path: Path) -> None:
    ports = {"host": "127.0.0.1", "comport": 0, "techport": 0}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"deploy": {"monique": {"scheduler-in": ports}}}))

    async def test() -> None:
        async with doors(config_file=path):
            pass

    with pytest.raises(BadSettings, match="components need both"):
        asyncio.run(test())


@pytest.mark.parametrize("exposed", ["scheduler-in", "scheduler-out", "controller", "websocket"])
def test_what_other_machines_would_reach_is_opened_only_if_somebody_says_that_it_is_guarded(
    tmp_path: Path, exposed: str
) -> None:
    ends = {name: {"host": "127.0.0.1", "comport": 0, "techport": 0} for name in ("scheduler-in", "scheduler-out")}
    deploy = {"websocket": {"host": "127.0.0.1", "port": 0}, "controller": {"host": "127.0.0.1"}}
    if exposed != "controller":  # they listen where the scheduler does
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


def test_components_of_a_controller_share_a_queue_with_no_other_spec(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "READ_AGAIN_S", 0.02)
    path = config_json(tmp_path / "config.json")
    routes = {"a_b": "tasks", "c_d": "tasks", "e_f": "others"}

    async def test() -> None:
        async with doors(config_file=path, routes=routes) as (place, _):
            config_json(path, a_b=free_port(), e_f=free_port())
            await until(lambda: "e_f" in place.doors._takers)
            assert "a_b" not in place.doors._takers
        async with doors(config_file=path, routes=routes):
            pass

    with pytest.raises(BadSettings, match="give each a queue of its own"):
        run(test)
    assert "tasks of c_d too" in caplog.text


def test_without_pyzmq_its_ports_are_refused_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monique_config, "find_spec", lambda name: None)

    async def test(**settings: Any) -> None:
        async with doors(**settings) as (place, _):
            assert await (await place.client()).ask("ping", 1) == {"command": "pong", "data": 1}

    asyncio.run(test())
    with pytest.raises(BadSettings, match=r"pip install 'wakeq\[monique\]'"):
        asyncio.run(test(config_file=config_json(tmp_path / "config.json")))
