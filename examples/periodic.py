"""A periodic job: any number of instances run, and each of its moments has one run.

    PERIOD_S=60 python -m examples.periodic     # every minute; start as many of these as you like

A time of the day is `worker.schedule(report, "30 6 * * mon-fri", zone="Europe/Berlin")`.  A run that fails is tried
again and does not hold up the next one.
"""

import os
from datetime import datetime

from wakeq import Retry, Worker, current

PERIOD_S = int(os.environ.get("PERIOD_S", "60"))

worker = Worker()


@worker.task("reports", retry=Retry(max=10, backoff="exponential"))
def report() -> None:
    moment = datetime.fromisoformat(current().headers["scheduled"])  # for which this run is, whenever it runs
    print(f"report {moment.timestamp():.0f}", flush=True)


worker.schedule(report, PERIOD_S)

if __name__ == "__main__":
    worker.run()
