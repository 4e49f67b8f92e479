"""The command line of the simulation; the package's docstring has examples."""

import argparse
import statistics
import sys
import time

from tests.simulation.minimise import minimise
from tests.simulation.mutants import MUTANTS, planted
from tests.simulation.run import Outcome, simulate

MUTANT_SEEDS_MAX = 2_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Run seeds of the Raft simulation.")
    parser.add_argument("--seeds", type=int, default=100, help="number of seeds (default: %(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument("--mode", choices=("safety", "liveness"), default="safety")
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument("--skip", default="", help="acts of the nemesis to leave out, by number: 0,3,4")
    parser.add_argument("--minimise", action="store_true", help="find the acts that a failing seed needs")
    parser.add_argument("--mutants", action="store_true", help="count the seeds that find each planted bug")
    parser.add_argument("--only", default="", help="only mutants whose name contains this")
    chosen = parser.parse_args()
    if chosen.mutants:
        return hunt(chosen.only, first=chosen.first)
    if chosen.seed is not None:
        chosen.first, chosen.seeds = chosen.seed, 1
    skip = frozenset(int(act) for act in chosen.skip.split(",") if act)
    return run_seeds(range(chosen.first, chosen.first + chosen.seeds), chosen, skip)


def run_seeds(seeds: range, chosen: argparse.Namespace, skip: frozenset[int]) -> int:
    """Run the seeds one after the other; print failures and speed."""
    began_s, events, failures = time.process_time(), 0, 0
    for seed in seeds:
        story: list[str] | None = [] if chosen.trace else None
        outcome = simulate(seed, chosen.mode, skip=skip, story=story)
        for line in story or ():
            print(line)
        if outcome.failure:
            report(outcome, minimise(seed, outcome.mode)[0] if chosen.minimise else skip)
        events += outcome.events
        failures += bool(outcome.failure)
    rate = events / max(time.process_time() - began_s, 1e-9)
    print(f"{len(seeds)} seeds, {events} events, {failures} failures, {rate:.0f} events/s of CPU")
    return 1 if failures else 0


def report(outcome: Outcome, skip: frozenset[int]) -> None:
    """Print a failure and the command that repeats it."""
    skipped = f" --skip {','.join(map(str, sorted(skip)))}" if skip else ""
    print(f"seed {outcome.seed}: {outcome.failure}")
    print(f"    python -m tests.simulation --mode {outcome.mode} --seed {outcome.seed}{skipped} --trace", flush=True)


def hunt(only: str, *, first: int) -> int:
    """Run fresh seeds against every planted bug, alternating the modes; print how many seeds it took to find it."""
    missed, counts = [], []
    for name in (name for name in MUTANTS if only in name):
        began_s = time.process_time()
        with planted(name):
            seeds = range(first, first + MUTANT_SEEDS_MAX)
            outcomes = (simulate(seed, ("safety", "liveness")[seed % 2]) for seed in seeds)
            found = next((outcome for outcome in outcomes if outcome.failure), None)
        if found is None:
            missed.append(name)
            print(f"{name:60} not found in {MUTANT_SEEDS_MAX} seeds", flush=True)
            continue
        counts.append(found.seed - first + 1)
        seconds = time.process_time() - began_s
        print(f"{name:60} {counts[-1]:5} seeds {seconds:6.1f} s  {found.mode}: {found.failure[:90]}", flush=True)
    print(f"{len(counts)} mutants found, {len(missed)} missed; median {statistics.median(counts or [0]):.0f} seeds")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
