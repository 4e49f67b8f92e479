"""kill -9 in a loop while TaskFlux clients and JSON workers share a queue, beside the load of the worker protocol.

WAKEQ_KILLS sets the number of kills, WAKEQ_SEED the moments at which they come.
"""

import asyncio
import os
import random

import pytest

from tests.e2e.conftest import StartBroker
from tests.helpers.clients.lines import AsyncLineClient
from tests.helpers.loads.crash_loop import Outcome, crash_loop
from tests.helpers.network.ports import free_port
from tests.helpers.taskflux.load import FluxLoad

KILLS = int(os.environ.get("WAKEQ_KILLS", "12"))


def run(start_broker: StartBroker, kills: int, *, up_s: tuple[float, float]) -> tuple[Outcome, FluxLoad]:
    seed = int(os.environ.get("WAKEQ_SEED", random.SystemRandom().randrange(10**6)))
    print(f"seed {seed}, {kills} kills")  # shown with a failure: WAKEQ_SEED repeats its moments
    port = free_port()
    broker = start_broker("--taskflux-port", str(port))

    async def both() -> tuple[Outcome, FluxLoad]:
        flux = FluxLoad(lambda: AsyncLineClient.connect(broker.worker_address), f"127.0.0.1:{port}", seed)
        await flux.start()
        outcome = await crash_loop(broker, crashes=kills, seed=seed, up_s=up_s)
        await flux.stop()
        return outcome, flux

    outcome, flux = asyncio.run(both())
    print(outcome.explain(), dict(flux.done), f"{flux.unseen} acknowledged unseen")
    return outcome, flux


@pytest.mark.long
def test_kills_under_load_lose_nothing_promised_to_taskflux_clients(start_broker: StartBroker) -> None:
    outcome, flux = run(start_broker, KILLS, up_s=(0.05, 0.8))

    outcome.demand_nothing_broken()
    assert not flux.wrong, flux.wrong[:10]
    for what in ("enqueue", "dequeue", "nack", "ahead", "publish", "fetch"):
        assert flux.done[what], f"invalid run, nobody did {what}: {dict(flux.done)}"
