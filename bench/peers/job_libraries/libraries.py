"""The job libraries of W7: how the worker and the publisher of each are started, and Redis as they mostly have it.

Nothing is started here.  A library is a broker of PEERS by name, and for wakeq that is wakeq itself.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from bench.peers.job_libraries.environment import pinned, programs_folder
from bench.peers.redis import RedisList

HERE = "bench.peers.job_libraries"


@dataclass(frozen=True, slots=True)
class Library:
    """`worker` is a command line, in which {port} is that of the broker; `jobs` take it a few seconds."""

    module: str
    worker: str
    jobs: int
    is_ours: bool = False  # runs in the environment of wakeq, and all others in their own

    async def programs(self) -> Path:
        return Path(sys.executable).parent if self.is_ours else await programs_folder()

    def worker_command(self, programs: Path, port: int) -> list[str]:
        program, *options = self.worker.format(port=port).split()
        return [str(programs / program), *options]

    def publisher_command(self, programs: Path) -> list[str]:
        return [str(programs / "python"), "-m", f"{HERE}.publisher", self.module]


LIBRARIES = {
    "wakeq": Library(f"{HERE}.wakeq", f"python -m {HERE}.wakeq", jobs=60_000, is_ours=True),
    "huey": Library(f"{HERE}.huey", f"huey_consumer {HERE}.huey.huey -k thread -w 8 -q", jobs=12_000),
    "dramatiq": Library(f"{HERE}.dramatiq", f"dramatiq {HERE}.dramatiq -p 1 -t 8", jobs=8_000),
    "celery": Library(
        f"{HERE}.celery", f"celery -A {HERE}.celery worker -P threads -c 8 --loglevel WARNING", jobs=6_000
    ),
    # RQ has no threads; SimpleWorker at least spares it a new process for each job.
    "rq": Library(
        f"{HERE}.rq", "rq worker -q -w rq.SimpleWorker -u redis://127.0.0.1:{port}/0 bench", jobs=2_000
    ),
}  # fmt: skip


class JobsOnRedis(RedisList):
    """Kinder to the libraries than to wakeq: a sync for each answer would cost them a part of their rate."""

    durability = "Redis, append-only file, synced once a second: a second of jobs can be lost"

    @classmethod
    def version(cls) -> str:
        return f"{pinned(cls.name)}, {super().version()}"

    def command(self) -> list[str]:
        return [*super().command(), "--appendfsync", "everysec"]  # the last word on a setting counts


class Huey(JobsOnRedis):
    name = "huey"


class Dramatiq(JobsOnRedis):
    name = "dramatiq"


class Celery(JobsOnRedis):
    name = "celery"


class Rq(JobsOnRedis):
    name = "rq"
