"""The simulation as a test: fresh seeds keep all invariants, planted bugs do not, and a seed repeats its run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.raft.script import replay
from tests.simulation.minimise import minimise
from tests.simulation.mutants import RARE, planted
from tests.simulation.run import Mode, simulate

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "tests/unit/protocol/raft/scripts").glob("*.txt"))
SEEDS = 500 if "SOAK" not in os.environ else 200_000
HASHES = "from tests.simulation.run import simulate; print([simulate(s, 'safety').trace_hash for s in range(20)])"


@pytest.mark.long
@pytest.mark.parametrize("mode", ["safety", "liveness"])
def test_invariants_hold_in_many_worlds(mode: Mode) -> None:
    outcomes = (simulate(seed, mode) for seed in range(SEEDS))

    failures = [(outcome.seed, outcome.failure) for outcome in outcomes if outcome.failure]

    assert failures == []


def test_invariants_hold_in_a_few_worlds() -> None:
    failures = [simulate(seed, mode).failure for seed in range(1000, 1010) for mode in ("safety", "liveness")]

    assert not any(failures)


@pytest.mark.parametrize("name", ["commits_without_a_majority", "votes_are_not_saved", "no_pre_vote"])
def test_planted_bug_is_found(name: str) -> None:
    with planted(name):
        outcomes = [simulate(seed, ("safety", "liveness")[seed % 2]) for seed in range(6)]

    assert any(outcome.failure for outcome in outcomes)
    assert not simulate(0, "safety").failure


@pytest.mark.parametrize("name", RARE)
def test_rare_planted_bug_is_found_by_a_script(name: str) -> None:
    with planted(name):
        found = [path.stem for path in SCRIPTS if replay(path.read_text(encoding="utf-8")) != path.read_text("utf-8")]

    assert found


def test_failing_run_is_minimised() -> None:
    with planted("keeps_entries_that_conflict"):
        seed = next(seed for seed in range(100) if simulate(seed, "safety").failure)
        before = simulate(seed, "safety")
        skip, after = minimise(seed, "safety")
        again = simulate(seed, "safety", skip=skip)

    assert before.failure
    assert after.failure
    assert (again.failure, again.trace_hash) == (after.failure, after.trace_hash)
    assert 0 < len(skip) < after.acts


def test_seed_gives_the_same_run_in_every_process() -> None:
    printed = [
        subprocess.run(
            [sys.executable, "-c", HASHES],
            env=os.environ | {"PYTHONHASHSEED": seed},
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]

    assert printed[0] == printed[1]
    assert len(set(printed[0].split(","))) == 20
