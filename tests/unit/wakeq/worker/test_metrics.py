"""Tests of metrics.py: instruments of OpenTelemetry, if the program has set up metrics."""

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from wakeq.client.message import Received
from wakeq.testing import broker
from wakeq.worker import Began, Dead, Done, Ended, Failed, Released, Worker, metrics

api = pytest.importorskip("opentelemetry.metrics", reason="opentelemetry-api is not installed")
sdk = pytest.importorskip("opentelemetry.sdk.metrics", reason="opentelemetry-sdk is not installed")
export = pytest.importorskip("opentelemetry.sdk.metrics.export", reason="opentelemetry-sdk is not installed")


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the reader of a program that has set up metrics."""
    reader = export.InMemoryMetricReader()
    provider = sdk.MeterProvider(metric_readers=[reader])
    monkeypatch.setattr(api, "get_meter_provider", lambda: provider)
    yield reader
    provider.shutdown()


def points(reader: Any) -> dict[str, list[tuple[dict[str, Any], Any]]]:
    """Return the points by the name of the instrument: attributes, and value or count."""
    found: dict[str, list[tuple[dict[str, Any], Any]]] = {}
    data = reader.get_metrics_data()
    for metric in data.resource_metrics[0].scope_metrics[0].metrics if data else ():
        found[metric.name] = [
            (dict(point.attributes), point.count if hasattr(point, "count") else point.value)
            for point in metric.data.data_points
        ]
    return found


def task_of(worker: Worker) -> Any:
    @worker.task("q")
    def handler(number: int = 0) -> None: ...

    return handler


def test_publishes_of_a_task_are_counted_and_measured(reader: Any) -> None:
    worker = Worker()
    task = task_of(worker)

    with broker(worker):
        task.publish()
        task.publish_many([{}, {}])

    found = points(reader)
    assert sum(value for _, value in found["messaging.client.sent.messages"]) == 3
    ((attributes, count),) = found["messaging.client.operation.duration"]
    assert count == 2
    assert attributes == {
        "messaging.system": "wakeq",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": "q",
    }


def test_failed_publish_names_its_error(reader: Any) -> None:
    worker = Worker()
    task = task_of(worker)

    with broker(worker) as b:
        b.disk_full()
        with pytest.raises(Exception, match="disk"):
            task.publish()

    ((attributes, _),) = points(reader)["messaging.client.operation.duration"]
    assert attributes["error.type"] == "DISK_FULL"


@pytest.mark.parametrize(
    ("outcome", "name", "error"),
    [
        (Done(), "done", None),
        (Failed("no", 1), "failed", "failed"),
        (Dead("no"), "dead letter", "dead letter"),
        (Released("later", 1), "released", None),
    ],
)
def test_handlers_are_counted_and_measured_by_outcome(reader: Any, outcome: Any, name: str, error: str | None) -> None:
    task = task_of(Worker())
    message = Received(queue="q", uid="u1", body=b"{}", lease="1", delivery=1)
    listener = metrics.listener()
    assert listener is not None

    listener(Began(task, message))
    assert points(reader)["wakeq.worker.running"][0][1] == 1
    listener(Ended(task, message, outcome, 0.5))

    found = points(reader)
    assert found["wakeq.worker.running"][0][1] == 0
    assert found["messaging.client.consumed.messages"][0][1] == 1
    ((attributes, count),) = found["messaging.process.duration"]
    assert (count, attributes["wakeq.outcome"], attributes.get("error.type")) == (1, name, error)


def test_worker_of_a_program_with_metrics_has_a_thread_that_measures(reader: Any) -> None:
    worker = Worker()
    task_of(worker)

    thread = worker._make_listeners()

    assert thread is not None
    asyncio.run(thread.close(asyncio.Event()))


def test_program_without_metrics_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert metrics.listener() is None
    assert metrics.sending("q", 1) is metrics.NO_METRICS

    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    metrics._installed.cache_clear()
    try:
        assert metrics.listener() is None
    finally:
        monkeypatch.undo()
        metrics._installed.cache_clear()
