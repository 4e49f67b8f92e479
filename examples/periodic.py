"""A periodic job: any number of instances may run, and the job runs once at each of its moments.

    PERIOD_S=60 python -m examples.periodic     # every minute; start as many of these as you like

For a time of day, write `worker.schedule(report, "30 6 * * mon-fri", zone="Europe/Berlin")`. A run that fails is
retried and does not delay the next one.
"""

import os
from datetime import datetime

from wakeq import Retry, Worker, current

PERIOD_S = int(os.environ.get("PERIOD_S", "60"))

worker = Worker()


@worker.task("reports", retry=Retry(max=10, backoff="exponential"))
def report() -> None:
    # The moment for which this run is scheduled; a retry runs later.
    moment = datetime.fromisoformat(current().headers["scheduled"])
    print(f"report {moment.timestamp():.0f}", flush=True)


worker.schedule(report, PERIOD_S)

if __name__ == "__main__":
    worker.run()
