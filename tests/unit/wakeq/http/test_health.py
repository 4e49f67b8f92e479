"""Health: which answers of a node make it ready."""

import asyncio
import json
from dataclasses import dataclass

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from wakeq.http.health import Health
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.queue.timings import Timings

LEADS_ELSEWHERE = Refusal("NOT_LEADER", "node 1 leads; connect to it", "b:2601", "b:8080")
NOBODY_LEADS = Refusal("NOT_LEADER", "no node leads at this moment")
TOO_FEW = Refusal("NO_QUORUM", "too few of the other nodes answer in time")


@dataclass
class HandStanding:
    """What a log would say."""

    why: Refusal | None = None
    is_forming: bool = False
    is_catching_up: bool = False

    def refusal(self) -> Refusal | None:
        return self.why


@pytest.mark.parametrize(
    ("standing", "path", "status"),
    [
        (HandStanding(), "/readyz", 200),
        (HandStanding(), "/readyz?leader", 200),
        (HandStanding(LEADS_ELSEWHERE), "/readyz", 200),
        (HandStanding(LEADS_ELSEWHERE), "/readyz?leader", 503),
        (HandStanding(LEADS_ELSEWHERE, is_catching_up=True), "/readyz", 503),
        (HandStanding(NOBODY_LEADS), "/readyz", 503),
        (HandStanding(NOBODY_LEADS, is_forming=True, is_catching_up=True), "/readyz", 200),
        (HandStanding(NOBODY_LEADS, is_forming=True), "/readyz?leader", 503),
        (HandStanding(TOO_FEW), "/readyz", 503),
    ],
)
def test_node_is_ready_if_it_serves_or_has_caught_up_with_whoever_does_or_nobody_can_yet(
    standing: HandStanding, path: str, status: int
) -> None:
    unused = None
    health = Health(unused, unused, standing, lambda: 0, Timings(), queues_max=lambda: 1, timed_max=lambda: 1)  # type: ignore[arg-type]

    answer: web.Response = asyncio.run(health.readyz(make_mocked_request("GET", path)))

    assert answer.status == status
    assert isinstance(answer.body, bytes)
    facts = json.loads(answer.body)
    assert (facts["ready"], facts["serves"]) == (status == 200, standing.why is None)
