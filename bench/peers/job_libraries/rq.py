"""The job as RQ has it.  It is the one of the four that can publish many at once."""
# mypy: disable-error-code="import-not-found"

from collections.abc import Sequence

from redis import Redis
from rq import Queue

from bench.peers.job_libraries.job import BALLAST, PORT, leave_mark

BATCH = 100


def job(number: int, ballast: str) -> None:
    leave_mark(number)


def publish(numbers: Sequence[int]) -> None:
    queue = Queue("bench", connection=Redis(host="127.0.0.1", port=PORT))
    for start in range(0, len(numbers), BATCH):
        batch = numbers[start : start + BATCH]
        queue.enqueue_many([Queue.prepare_data(job, (number, BALLAST)) for number in batch])
