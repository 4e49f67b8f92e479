"""The command line of the benchmark: `python -m bench`, and `python -m bench profile W1`, `... calls W1`, `... rounds`.

Arguments in, the report on standard output.  A missed bar is no failure of the command: a figure from a
noisy machine is for a reader, not for a gate.
"""

import argparse
import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path

import uvloop

from bench import runner
from bench.counting import rounds
from bench.counting.calls import count_calls
from bench.counting.profile import profile
from bench.peers import PEERS
from bench.peers.peer import REPOSITORY
from bench.workloads import WORKLOADS
from bench.workloads.workload import Plan, Workload

SECONDS = 4.0
OR = "profile WORKLOAD, calls WORKLOAD, calls lone, rounds"
QUICK = Plan(seconds=0.5, scale=0.01)
ALL = ",".join(WORKLOADS)


def chosen_workloads(text: str) -> list[Workload]:
    """W2 means W2 and W2B: a name takes those of the same number."""
    found = [
        workload
        for wanted in text.upper().split(",")
        for workload in WORKLOADS.values()
        if re.fullmatch(rf"{re.escape(wanted)}[A-Z]?", workload.name)
    ]
    if not found:
        raise SystemExit(f"no workload {text}; there are {', '.join(WORKLOADS)}")
    return list(dict.fromkeys(found))


def chosen_peers(text: str) -> list[str]:
    found = [name for wanted in text.split(",") for name in PEERS if name.startswith(wanted)]
    if not found:
        raise SystemExit(f"no peer {text}; there are {', '.join(PEERS)}")
    return list(dict.fromkeys(found))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench", description="Measure wakeq beside its peers.")
    made.add_argument("what", nargs="*", help=f"nothing, or: {OR}")
    made.add_argument("--workloads", default=ALL, help=f"of {', '.join(WORKLOADS)} (default: all)")
    made.add_argument("--peers", default=",".join(PEERS), help=f"of {', '.join(PEERS)} (default: all installed)")
    made.add_argument("--rounds", type=int, default=1, help="how often; medians are shown (W5, W6, W8: once)")
    made.add_argument("--seconds", type=float, default=SECONDS, help="of load in each cell")
    made.add_argument("--full", action="store_true", help="also what takes very long (10^7 messages in one queue)")
    made.add_argument("--quick", action="store_true", help="tiny: only to see that it works; keeps no result")
    made.add_argument("--json", type=Path, help="append the raw figures of each cell to this file")
    return made


def measured(work: Coroutine[None, None, str]) -> str:
    try:
        return uvloop.run(work)
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise SystemExit("interrupted; nothing was kept") from None


def main() -> None:
    options = parser().parse_args()
    command = shlex.join(["python", "-m", "bench", *sys.argv[1:]])
    parent = Path(os.environ.get("WAKEQ_BENCH_DIR") or REPOSITORY.parent)
    with runner.Home(parent) as home:
        match options.what:
            case []:
                peers, skipped = runner.present(chosen_peers(options.peers))
                plan = QUICK if options.quick else Plan(seconds=options.seconds, full=options.full)
                order = runner.Order(
                    workloads=chosen_workloads(options.workloads),
                    peers=peers,
                    plan=plan,
                    rounds=options.rounds,
                    json_file=options.json,
                    keep_in=None if options.quick else REPOSITORY / "bench" / "results",
                    command=command,
                )
                notes = home.warnings + skipped
                for note in notes:
                    runner.say(note)
                print(measured(runner.run(order, home.path, notes)))
            case ["profile", name]:
                (workload, *_) = chosen_workloads(name)
                print(measured(profile(workload, Plan(seconds=options.seconds), home.path)))
            case ["calls", "lone"]:  # in a process of its own, in which all clocks stand still
                subprocess.run([sys.executable, "-m", "bench.tour", "--cycle"], cwd=REPOSITORY, check=True)
            case ["rounds"]:
                text = rounds.report(QUICK.seconds if options.quick else options.seconds, options.rounds, command)
                print(text)
                if not options.quick:
                    rounds.keep(text)
            case ["calls", name]:
                (workload, *_) = chosen_workloads(name)
                print(measured(count_calls(workload, Plan(seconds=options.seconds), home.path)))
            case _:
                parser().error(f"nothing, or: {OR}")


if __name__ == "__main__":
    main()
