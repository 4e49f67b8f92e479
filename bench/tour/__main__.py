"""`python -m bench.tour`: makes the pages of docs/tour, and says how long the ways are.

    python -m bench.tour             write the pages; refused while a way is longer than the pages say
    python -m bench.tour --longer    write them all the same: the longer way is worth it, and the commit says why
    python -m bench.tour --check     write nothing; fail if a page is not what it would be
    python -m bench.tour --cycle     print the calls of a lone PUB, FET and ACK by file

The pages are those of one version of Python: another one calls other functions, for comprehensions to begin with.
Importing this module stops the clocks of the process; nobody but the interpreter should.
"""

import argparse
import sys

from bench.hand.clock import HandClock

CLOCK = HandClock()
CLOCK.stop()  # before anything is imported that keeps a clock of the machine for itself

from bench.tour import pages, ways  # noqa: E402
from bench.tour.recorder import ROOT  # noqa: E402

PYTHON = (3, 11)


def main() -> int:
    options = parser().parse_args()
    if options.cycle:
        print(pages.cycle_by_file(ways.see_cycle(CLOCK)))
        return 0
    if sys.version_info[:2] != PYTHON:
        wanted, here = (".".join(map(str, version)) for version in (PYTHON, sys.version_info[:2]))
        print(f"docs/tour is of Python {wanted}; with {here} it can be neither made nor checked")
        return 0 if options.check else 1
    seen = ways.see_all(CLOCK)
    return check(seen) if options.check else write(seen, may_be_longer=options.longer)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench.tour", description="Make the pages of docs/tour.")
    made.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    made.add_argument("--longer", action="store_true", help="write the pages although a way has become longer")
    made.add_argument("--cycle", action="store_true", help="print the calls of a lone PUB, FET and ACK by file")
    return made


def check(seen: ways.Ways) -> int:
    """Name each page that is out of date."""
    tour = pages.TOUR.read_text(encoding="utf-8")
    made = pages.pages(tour, seen)
    stale = [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)} is out of date; run `make tour`")
    return 1 if stale else 0


def write(seen: ways.Ways, *, may_be_longer: bool) -> int:
    """Write the pages, unless a way has become longer and should not."""
    print(pages.table_of(seen))
    tour = pages.TOUR.read_text(encoding="utf-8")
    longer = pages.longer_ways(tour, seen)
    for sentence in longer:
        print(sentence)
    if longer and not may_be_longer:
        print("nothing was written: make the way shorter again, or say in the commit why not, and pass --longer")
        return 1
    for path, text in pages.pages(tour, seen).items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
