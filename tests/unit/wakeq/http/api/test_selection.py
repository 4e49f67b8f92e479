"""Selection: how fast it goes through what is meant."""

import asyncio
from typing import Any, cast

from tests.helpers.loops.driven import in_driven_time
from wakeq.http.api.queries import Queries
from wakeq.http.api.selection import PAGE, SelectBody, Selection


def test_batches_of_a_paced_call_are_no_faster_than_their_rate() -> None:
    moments_s: list[float] = []

    async def do(rows: list[dict[str, Any]]) -> int:
        moments_s.append(asyncio.get_running_loop().time() - began_s)
        return len(rows)

    async def scenario() -> None:
        nonlocal began_s
        began_s = asyncio.get_running_loop().time()
        body = SelectBody(uids=[f"{number}" for number in range(3 * PAGE)], rate=4 * PAGE)
        selected = await Selection(cast(Queries, None), lambda: 0, "jobs", body).run(do)
        assert selected.done == 3 * PAGE

    began_s = 0.0
    in_driven_time(scenario)

    assert moments_s == [0.0, 0.25, 0.5]
