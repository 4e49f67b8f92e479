"""W7 counts what was really done: marks, processes that end, and tiny runs with a fake library."""

import asyncio
import sys
from pathlib import Path

import pytest

from bench.load.clients import PeerFailed
from bench.peers.beanstalkd import ToyGroup
from bench.peers.job_libraries.environment import pinned
from bench.peers.job_libraries.libraries import LIBRARIES, Celery, Dramatiq, Huey, JobsOnRedis, Library, Rq
from bench.peers.job_libraries.marks import Marks
from bench.peers.peer import REPOSITORY
from bench.runner import run_cell
from bench.workloads import jobs
from bench.workloads.workload import Plan, Workload

TINY = Plan(seconds=0.2, scale=0.001)
FAKE_JOBS = Path(__file__).with_name("fake_jobs.py")
W7 = jobs.WORKLOADS[0]


class FakeLibrary(ToyGroup):
    """Any broker will do, for the jobs do not pass through it."""

    name = "fake"


def use_fake(monkeypatch: pytest.MonkeyPatch, mode: str = "work") -> None:
    worker = f"{Path(sys.executable).name} {FAKE_JOBS} {mode}"
    fake = Library("tests.unit.bench.fake_jobs", worker, jobs=1_000, is_ours=True)
    monkeypatch.setitem(LIBRARIES, "fake", fake)


def test_job_that_runs_twice_counts_once_in_every_mapping(tmp_path: Path) -> None:
    seen = Marks.create(tmp_path / "marks", jobs=3)
    worker = Marks(tmp_path / "marks")

    worker.leave(2)
    worker.leave(2)
    worker.leave(0)

    assert seen.count() == 2


def test_unpublished_job_leaves_no_mark(tmp_path: Path) -> None:
    marks = Marks.create(tmp_path / "marks", jobs=3)

    with pytest.raises(IndexError):
        marks.leave(3)


@pytest.mark.parametrize("workload", jobs.WORKLOADS, ids=lambda workload: workload.name)
def test_tiny_run_gives_every_figure_of_its_table(
    workload: Workload, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_fake(monkeypatch)

    figures = asyncio.run(run_cell(workload, FakeLibrary(tmp_path), TINY, tmp_path))

    wanted = {column.figure for column in workload.columns} - {"per_cpu"}  # too short for the clock's tick
    assert wanted <= figures.keys()
    assert figures["rate"] > 0


def test_side_by_side_counts_the_jobs_behind_the_warm_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_fake(monkeypatch)

    figures = asyncio.run(run_cell(W7, FakeLibrary(tmp_path), TINY, tmp_path))

    assert figures["count"] == TINY.count(1_000, least=100)


def test_ended_worker_fails_the_cell_with_its_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_fake(monkeypatch, "die")

    with pytest.raises(PeerFailed, match="worker of fake ended with 1: the worker of this test has no wish to work"):
        asyncio.run(run_cell(W7, FakeLibrary(tmp_path), TINY, tmp_path))


def test_unfinished_job_fails_the_cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_fake(monkeypatch, "skip")
    monkeypatch.setattr(jobs, "DONE_S_MAX", 2.0)

    with pytest.raises(PeerFailed, match="only 99 of 100 jobs"):
        asyncio.run(run_cell(W7, FakeLibrary(tmp_path), TINY, tmp_path))


@pytest.mark.parametrize("peer_class", [Huey, Dramatiq, Celery, Rq])
def test_libraries_have_a_module_and_a_pinned_version(peer_class: type[JobsOnRedis]) -> None:
    module = LIBRARIES[peer_class.name].module

    assert pinned(peer_class.name)[0].isdigit()
    assert (REPOSITORY / module.replace(".", "/")).with_suffix(".py").exists()
