"""What a task knows of its query, from the properties that Spark gives to it."""

import gc
import sys
from types import ModuleType, SimpleNamespace

import pytest

from wakeq.pipeline.stream import tasks
from wakeq.pipeline.stream.tasks import Batch, current_batch, master, spare_imports

pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed")
pytestmark = pytest.mark.spark


RUN = "13dbd975-6c26-4e6e-8387-025824da7573"


def in_task(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str] | None) -> None:
    task = None if properties is None else SimpleNamespace(getLocalProperty=properties.get)
    monkeypatch.setattr(pyspark, "TaskContext", SimpleNamespace(get=lambda: task))


def test_task_of_a_stream_knows_query_batch_and_run(monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"sql.streaming.queryId": "a-b", "streaming.sql.batchId": "0", "spark.jobGroup.id": RUN}
    in_task(monkeypatch, about | {"spark.master": "yarn"})

    assert current_batch() == Batch("a-b", 1, RUN)
    assert Batch("a-b", 1, RUN).reader == "query-a-b"
    assert master() == "yarn"


@pytest.mark.parametrize("properties", [None, {}, {"spark.jobGroup.id": "mine", "spark.master": "local[2]"}])
def test_task_of_a_job_knows_no_batch(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str] | None) -> None:
    in_task(monkeypatch, properties)

    assert current_batch() is None


def test_group_that_a_program_has_named_is_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    in_task(monkeypatch, {"sql.streaming.queryId": "a", "streaming.sql.batchId": "7", "spark.jobGroup.id": "my group"})

    assert current_batch() == Batch("a", 8, "")


def test_imports_are_out_of_garbage_collection_and_later_garbage_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_spared", [])
    try:
        spare_imports()
        spared = gc.get_freeze_count()
        own = ["of a task"]
        spare_imports()
        is_collected = any(one is own for one in gc.get_objects())
        monkeypatch.setitem(sys.modules, "imported_later", ModuleType("imported_later"))
        spare_imports()

        assert spared > 0
        assert is_collected, "a task without new imports leaves its objects to the collector"
        assert not any(one is own for one in gc.get_objects())
    finally:
        gc.unfreeze()


def test_worker_that_imports_in_each_task_spares_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_spared", [])
    try:
        for number in range(2 * tasks.SPARES_MAX):
            monkeypatch.setitem(sys.modules, f"imported_{number}", ModuleType(f"imported_{number}"))
            own = [number]
            spare_imports()

        assert any(one is own for one in gc.get_objects())
    finally:
        gc.unfreeze()
