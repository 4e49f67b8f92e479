"""The job as Dramatiq has it."""
# mypy: disable-error-code="import-not-found, untyped-decorator"

from collections.abc import Iterable

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers.job_libraries.job import BALLAST, PORT, leave_mark

dramatiq.set_broker(RedisBroker(host="127.0.0.1", port=PORT))


@dramatiq.actor
def job(number: int, ballast: str) -> None:
    leave_mark(number)


def publish(numbers: Iterable[int]) -> None:
    for number in numbers:
        job.send(number, BALLAST)
