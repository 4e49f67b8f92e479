"""The job as Celery has it."""
# mypy: disable-error-code="import-not-found, untyped-decorator"

from collections.abc import Iterable

from celery import Celery

from bench.peers.job_libraries.job import BALLAST, PORT, leave_mark

app = Celery("bench", broker=f"redis://127.0.0.1:{PORT}/0")


@app.task
def job(number: int, ballast: str) -> None:
    leave_mark(number)


def publish(numbers: Iterable[int]) -> None:
    for number in numbers:
        job.delay(number, BALLAST)
