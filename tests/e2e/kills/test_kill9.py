"""kill -9 in a loop under load: no promised message is lost, and no acknowledged message is delivered again.

WAKEQ_KILLS sets the number of kills of the long run, WAKEQ_SEED the moments at which they come.
"""

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.e2e.conftest import StartBroker
from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.brokers.sized import sized
from tests.helpers.loads.crash_loop import CUTS_OFTEN_MS, Outcome, crash_loop

KILLS = int(os.environ.get("WAKEQ_KILLS", "100"))
OPS_PER_S_MIN = 1_000


def run(broker: BrokerProcess, tmp_path: Path, kills: int, *, up_s: tuple[float, float]) -> Outcome:
    seed = int(os.environ.get("WAKEQ_SEED", random.SystemRandom().randrange(10**6)))
    print(f"seed {seed}, {kills} kills")  # shown with a failure: WAKEQ_SEED repeats its moments
    outcome = asyncio.run(crash_loop(broker, crashes=kills, seed=seed, up_s=up_s, ledger=tmp_path / "ledger.jsonl"))
    print(outcome.explain())
    return outcome


def test_three_kills_under_load_lose_nothing(start_broker: StartBroker, tmp_path: Path) -> None:
    outcome = run(start_broker(), tmp_path, 3, up_s=(0.1, 0.6))

    outcome.demand_nothing_broken()
    outcome.demand_valid(ops_per_s_min=OPS_PER_S_MIN / 4)


@pytest.mark.long
def test_hundred_kills_under_load_lose_nothing(start_broker: StartBroker, tmp_path: Path) -> None:
    outcome = run(start_broker(command=sized(flush_after_ms=CUTS_OFTEN_MS)), tmp_path, KILLS, up_s=(0.05, 0.5))

    outcome.demand_nothing_broken()
    outcome.demand_valid(ops_per_s_min=OPS_PER_S_MIN)
