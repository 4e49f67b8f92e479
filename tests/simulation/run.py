"""Run: one seed from beginning to end.

    seed, mode --> Outcome: the number of events, the hash of the trace, and the failure, if any

Safety: faults all the time, and no invariant may break.  Liveness: fewer and milder faults, then none, and the cluster
must recover.
"""

import traceback
from typing import Literal

import msgspec

from tests.simulation.nemesis import Nemesis
from tests.simulation.recovery import Recovery
from tests.simulation.world import World

Mode = Literal["safety", "liveness"]
SAFETY_EVENTS = 6_000
LIVENESS_EVENTS = 2_500  # of faults, before the recovery


class Outcome(msgspec.Struct, frozen=True):
    seed: int
    mode: Mode
    events: int
    trace_hash: int
    acts: int  # of the nemesis
    failure: str = ""


def simulate(seed: int, mode: Mode, *, skip: frozenset[int] = frozenset(), story: list[str] | None = None) -> Outcome:
    """Run one world without the skipped acts of the nemesis; append a line for each event to `story`."""
    world = World(seed)
    world.story = story
    nemesis = Nemesis(world, wipes=0 if mode == "liveness" else world.knobs.voters // 2, skip=skip)
    failure = ""
    try:
        _run(world, nemesis, mode)
    # Any exception that ends a node is a failure.
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        world.tell(traceback.format_exc())
    return Outcome(seed, mode, world.events, world.trace_hash, nemesis.acts, failure)


def _run(world: World, nemesis: Nemesis, mode: Mode) -> None:
    world.start()
    world.at(0, world.clients_act, None)
    world.at(world.knobs.fault_us, nemesis.act, None)
    if mode == "safety":
        world.run(events=SAFETY_EVENTS)
        return
    world.run(events=LIVENESS_EVENTS)
    nemesis.is_over = True
    Recovery(world).prove()
