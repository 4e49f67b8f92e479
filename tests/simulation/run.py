"""Run: one seed from beginning to end.

    seed, mode --> Outcome: how many events, the hash of the trace, and what was broken, if anything

Safety: faults all the time, and nothing is claimed but that no invariant breaks.  Liveness: fewer and milder faults,
then none, and the cluster must recover.
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
    """Run one world, without the acts of the nemesis that are to be skipped.  A story is told what happens."""
    world = World(seed)
    world.story = story
    nemesis = Nemesis(world, wipes=0 if mode == "liveness" else world.knobs.voters // 2, skip=skip)
    failure = ""
    try:
        _run(world, nemesis, mode)
    except Exception as error:  # whatever ends a node is a failure
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
