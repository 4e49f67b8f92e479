"""The job as Huey has it."""
# mypy: disable-error-code="import-not-found, untyped-decorator"

from collections.abc import Iterable

from huey import RedisHuey

from bench.peers.job_libraries.job import BALLAST, PORT, leave_mark

huey = RedisHuey("bench", host="127.0.0.1", port=PORT)


@huey.task()
def job(number: int, ballast: str) -> None:
    leave_mark(number)


def publish(numbers: Iterable[int]) -> None:
    for number in numbers:
        job(number, BALLAST)
