"""The job as wakeq has it; run as a program, its worker."""

from collections.abc import Sequence

from bench.peers.job_libraries.job import BALLAST, PORT, THREADS, leave_mark
from wakeq import Client, Worker

BROKER = f"127.0.0.1:{PORT}"
QUEUE = "bench"
BATCH = 100

worker = Worker(BROKER, concurrency=THREADS)


@worker.task(QUEUE)
def job(number: int, ballast: str) -> None:
    leave_mark(number)


def publish(numbers: Sequence[int]) -> None:
    with Client(BROKER) as client:
        for start in range(0, len(numbers), BATCH):
            batch = numbers[start : start + BATCH]
            client.publish_many(QUEUE, [{"number": number, "ballast": BALLAST} for number in batch])


if __name__ == "__main__":
    worker.run()
