"""Health: which answers of a node make it ready."""

import asyncio
import json

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from wakeq.http.health import Health
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.queue.timings import Timings

LEADS_ELSEWHERE = Refusal("NOT_LEADER", "node 1 leads; connect to it", "b:2601", "b:8080")
NOBODY_LEADS = Refusal("NOT_LEADER", "no node leads at this moment")
TOO_FEW = Refusal("NO_QUORUM", "too few of the other nodes answer in time")


@pytest.mark.parametrize(
    ("refusal", "is_forming", "path", "status"),
    [
        (None, False, "/readyz", 200),
        (None, False, "/readyz?leader", 200),
        (LEADS_ELSEWHERE, False, "/readyz", 200),
        (LEADS_ELSEWHERE, False, "/readyz?leader", 503),
        (NOBODY_LEADS, False, "/readyz", 503),
        (NOBODY_LEADS, True, "/readyz", 200),
        (NOBODY_LEADS, True, "/readyz?leader", 503),
        (TOO_FEW, False, "/readyz", 503),
    ],
)
def test_node_is_ready_if_it_serves_or_knows_who_does_or_nobody_can_yet(
    refusal: Refusal | None, is_forming: bool, path: str, status: int
) -> None:
    unused = None
    health = Health(
        unused,  # type: ignore[arg-type]
        unused,  # type: ignore[arg-type]
        lambda: refusal,
        lambda: is_forming,
        lambda: 0,
        Timings(),
        queues_max=lambda: 1,
    )

    answer: web.Response = asyncio.run(health.readyz(make_mocked_request("GET", path)))

    assert answer.status == status
    assert isinstance(answer.body, bytes)
    facts = json.loads(answer.body)
    assert (facts["ready"], facts["serves"]) == (status == 200, refusal is None)
