"""A shop whose jobs the pictures show: three workers, and a program that publishes as customers come and go.

    python shop.py work|publish, with WAKEQ_BROKER --> jobs done, failed, retried, dead

Run by screens.py; it ends when it is terminated.
"""

import math
import random
import sys
import time

from wakeq import Client, Worker
from wakeq.worker import Retry

worker = Worker(name="shop", concurrency=8)
# So that a message becomes a dead letter while somebody watches.
SOON = Retry(max=3, delay=2, backoff="exponential")


@worker.task("mails", retry=SOON)
def mail(to: str, template: str) -> None:
    time.sleep(random.uniform(0.01, 0.05))
    if random.random() < 0.03:
        raise ConnectionError("SMTP 451: mailbox busy, try again later")


@worker.task("payments.capture", retry=SOON)
def capture(order: int, cents: int) -> None:
    time.sleep(random.uniform(0.05, 0.2))
    if order % 40 == 7:
        raise ValueError(f"the bank has refused order {order}: card expired")


@worker.task("thumbnails")
def thumbnail(image: str, width: int) -> None:
    time.sleep(random.expovariate(8))


@worker.task("reports.daily")
def report(shop: str = "all") -> None:
    time.sleep(1.0)


worker.schedule(report, "@daily")
worker.schedule(report.options(priority=-5), "*/15 * * * *", arguments={"shop": "berlin"})


def publish() -> None:
    """Publish what a shop publishes, more in one minute and less in another."""
    random.seed(7)
    with Client() as client:
        order, began_s = 0, time.monotonic()
        while True:
            at_s = time.monotonic() - began_s
            busy = 1.0 + 0.7 * math.sin(at_s / 20) + 0.2 * math.sin(at_s / 3)
            mails = [{"to": f"customer{random.randrange(9_999)}@example.org", "template": "receipt"} for _ in range(9)]
            client.publish_many("mails", mails)
            for _ in range(3):
                order += 1
                client.publish("payments.capture", {"order": order, "cents": random.randrange(500, 20_000)})
                client.publish(
                    "thumbnails", {"image": f"product-{order}.png", "width": 320}, priority=random.randrange(5)
                )
            if order % 12 == 0:
                client.publish("invoices.overdue", {"order": order}, delay=random.randrange(60, 86_400))
                client.publish("search.index", {"order": order})
            time.sleep(0.25 / max(busy, 0.1))


if __name__ == "__main__":
    {"work": worker.run, "publish": publish}[sys.argv[1]]()
