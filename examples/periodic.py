"""A periodic job: it publishes its own next run, and any number of instances do each run once.

    PERIOD_S=60 python -m examples.periodic     # every minute; start as many of these as you like

Time is cut into slots of PERIOD_S seconds, and the id of a run is its slot: whoever publishes the same slot again, at
its start or because a message was handled twice, publishes nothing.  The broker remembers ids for 15 minutes, so
PERIOD_S must be shorter.  A run that fails is tried again and does not hold up the next one.
"""

import math
import os
import sys
import time

from wakeq import Retry, Worker

PERIOD_S = int(os.environ.get("PERIOD_S", "60"))
PERIOD_S_MAX = 15 * 60 - 1

worker = Worker()


@worker.task("reports", retry=Retry(max=10, backoff="exponential"))
def report(slot: int) -> None:
    schedule(max(slot + 1, slot_now()))  # first of all, so that it goes on; slots in which nobody worked are left out
    print(f"report {slot}", flush=True)


def schedule(slot: int) -> None:
    """See that a slot has its run, at its beginning."""
    delay_s = max(0, math.ceil(slot * PERIOD_S - time.time()))
    report.options(delay=delay_s, id=f"report-{slot}").publish(slot=slot)


def slot_now() -> int:
    return int(time.time()) // PERIOD_S


if __name__ == "__main__":
    if not 1 <= PERIOD_S <= PERIOD_S_MAX:
        sys.exit(f"the period is {PERIOD_S} s; it takes 1 to {PERIOD_S_MAX}")
    schedule(slot_now() + 1)
    worker.run()
