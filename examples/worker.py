"""A worker by hand, in the protocol's own loop: fetch, work, acknowledge; sleep when there is nothing.

python examples/worker.py emails            # beside `make serve`; Ctrl-C ends it
"""

import sys

from wakeq import BrokerUnreachable, Client


def work(body: str) -> None:
    """Do what the message asks for; what raises here gives the message back."""
    print(f"sent {body}", flush=True)


def main(queue: str) -> None:
    with Client() as client:
        while True:
            message = client.fetch(queue, wait=30)  # sleeps until there is one, or 30 s are over
            if message is not None:
                with message:  # acknowledged at the end of the block, given back if it raises
                    work(message.text())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: worker.py QUEUE")
    try:
        main(sys.argv[1])
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokerUnreachable as error:  # it was away for longer than Client(reconnect_for_s=10)
        sys.exit(str(error))
