"""One step of a chain: acknowledge a message and publish its follow-up, both or neither.

python examples/follow_up.py orders invoices     # fetches one order, publishes one invoice
"""

import sys

from wakeq import Client


def main(source: str, target: str) -> None:
    with Client() as client:
        order = client.fetch(source, wait=10)
        if order is None:
            sys.exit(f"there is no message in {source}")
        # Both are one entry of the log.
        order.ack(then=[(target, {"invoice for": order.json()})])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
