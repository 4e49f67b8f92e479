"""The HTTP API: the values for charts."""

from pathlib import Path
from typing import Any

from tests.helpers.brokers.node_here import NodeHere, client_of, node_here, run
from wakeq.actors.mail import Tick
from wakeq.protocol.series import NAMES


async def look(here: NodeHere) -> None:
    """Have the node look at its queues without waiting for the next ten seconds."""
    here.node.queues.tell(Tick("series"))
    await here.call("GET", "/queues")


def test_values_of_node_and_queue_stand_beside_their_moments(tmp_path: Path) -> None:
    async def story() -> list[tuple[int, Any]]:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.publish("jobs", b"1")
            await look(here)
            queries = ({}, {"queue": "jobs"}, {"queue": ""}, {"step": 300, "last_s": 600}, {"queue": "none"})
            return [await here.call("GET", "/series", **query) for query in queries]

    node, jobs, default, long, missing = run(story())

    assert [status for status, _ in (node, jobs, default, long)] == [200] * 4
    for _, answer in (node, jobs):
        assert answer["step_s"] == 10
        assert list(answer["series"]) == list(NAMES)
        assert {len(column) for column in answer["series"].values()} == {len(answer["at_s"])}
        assert answer["series"]["ready"][-1] == 1
        assert answer["series"]["work_p50_s"][-1] is None
    assert len(default[1]["at_s"]) == 1
    assert long[1]["step_s"] == 300
    assert (missing[0], missing[1]["error"]["code"]) == (404, "Q_NOT_FOUND")


def test_step_that_is_not_kept_is_refused(tmp_path: Path) -> None:
    async def story() -> tuple[int, Any]:
        async with node_here(tmp_path / "data") as here:
            return await here.call("GET", "/series", step=60)

    status, answer = run(story())

    assert (status, answer["error"]["code"]) == (400, "BAD_FIELD")


def test_charts_go_on_after_a_clean_restart(tmp_path: Path) -> None:
    async def first() -> Any:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.publish("jobs", b"1")
            await look(here)
            return (await here.call("GET", "/series", queue="jobs"))[1]

    async def second() -> Any:
        async with node_here(tmp_path / "data") as here:
            return (await here.call("GET", "/series", queue="jobs"))[1]

    before, after = run(first()), run(second())

    assert before["at_s"]
    assert {name: column[: len(before["at_s"])] for name, column in after["series"].items()} == before["series"]
