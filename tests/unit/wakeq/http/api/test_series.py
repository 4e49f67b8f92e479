"""The HTTP API: the values for charts."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from tests.helpers.brokers.node_here import NodeHere, client_of, node_here, run
from wakeq.actors.mail import Tick
from wakeq.http.api.series import SeriesQuery, series_routes
from wakeq.protocol.series import DAY_S, NAMES, STEP_S, Look, Series


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


def test_long_answer_is_made_in_turns_and_lets_others_work_between_them() -> None:
    series, turns = Series(DAY_S), 0
    for step in range(1, DAY_S // STEP_S):
        series.take(step * STEP_S, Look((step, step, 0, 0), (step, 0, 0)))

    class HandQueries:
        async def series(self, queue: str | None, step_s: int, last_s: int) -> dict[str, Any]:
            return series.answer(step_s, last_s)

    async def story() -> bytes:
        nonlocal turns
        (route,) = series_routes(HandQueries())  # type: ignore[arg-type]
        answering = asyncio.ensure_future(route.handle(SeriesQuery()))
        while not answering.done():
            turns += 1
            await asyncio.sleep(0)
        return msgspec.json.encode(await answering)

    answer = msgspec.json.decode(asyncio.run(story()))

    assert turns >= len(NAMES)
    assert answer["series"]["published"][:2] == [None, 0.1]
    assert answer["series"]["ready"] == list(range(1, DAY_S // STEP_S))


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
