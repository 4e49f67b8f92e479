"""The publisher of a job library: a process that puts jobs on the queue when it is told to.

    python -m bench.peers.job_libraries.publisher MODULE

Each line on standard input, `FIRST LAST`, has it publish the jobs with these numbers, LAST not included, by
`publish(numbers)` of the module; a line on standard output says that it has.
"""

import importlib
import sys


def main() -> None:
    publish = importlib.import_module(sys.argv[1]).publish
    for line in sys.stdin:
        first, last = map(int, line.split())
        publish(range(first, last))
        print("published", flush=True)


if __name__ == "__main__":
    main()
