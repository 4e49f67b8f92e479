"""`wakeq serve` with other sizes than every broker has.

    python -m tests.helpers.brokers.sized NAME=NUMBER ... serve ...
    sized(flush_after_ms=100) --> the command, for a BrokerProcess

The names are those of `Sizes` of the node.  Nothing else is changed.
"""

import sys
from functools import partial


def sized(**sizes: int) -> tuple[str, ...]:
    """Return the command that serves with these sizes."""
    return (sys.executable, "-m", __name__, *(f"{name}={size}" for name, size in sizes.items()), "serve")


def main(arguments: list[str]) -> int:
    from wakeq.cli import main as run
    from wakeq.node import service
    from wakeq.node.node import Node, Sizes

    place = arguments.index("serve")
    sizes = dict(argument.split("=") for argument in arguments[:place])
    service.Node = partial(Node, sizes=Sizes(**{name: int(size) for name, size in sizes.items()}))  # type: ignore[misc]
    return run(arguments[place:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
