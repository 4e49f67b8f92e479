"""Tests of tracing.py: a trace in the headers of a message, and spans if OpenTelemetry is set up."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from wakeq import current
from wakeq.client.message import Received
from wakeq.worker import Worker, tracing
from wakeq.worker.outcome import Done
from wakeq.worker.pools.call import call, call_async

trace = pytest.importorskip("opentelemetry.trace", reason="opentelemetry-api is not installed")
sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed")
export = pytest.importorskip("opentelemetry.sdk.trace.export", reason="opentelemetry-sdk is not installed")
memory = pytest.importorskip(
    "opentelemetry.sdk.trace.export.in_memory_span_exporter", reason="opentelemetry-sdk is not installed"
)

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the exporter of a program that has set up its tracing."""
    exporter = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Simulate a program without opentelemetry-api."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    tracing._installed.cache_clear()
    yield
    monkeypatch.undo()
    tracing._installed.cache_clear()


def run(*, trace_parent: bool = False, headers: dict[str, str] | None = None) -> Done:
    """Handle one message whose handler publishes a follow-up."""

    def handler() -> None:
        current().then("next", "x")

    task: Any = Worker(trace_parent=trace_parent).task("q")(handler)
    message = Received(queue="q", uid="u1", body=b"{}", lease="1", delivery=2, headers=headers or {})
    outcome = call(task, message)
    assert isinstance(outcome, Done)
    return outcome


def test_handler_runs_in_a_span_linked_to_its_publisher(spans: Any) -> None:
    run(headers={"traceparent": PARENT})

    (span,) = spans.get_finished_spans()
    assert span.name == "process q"
    assert span.attributes["messaging.message.id"] == "u1"
    assert [f"{link.context.trace_id:032x}" for link in span.links] == [TRACE]
    assert span.parent is None


def test_span_is_a_child_of_its_publisher_with_trace_parent(spans: Any) -> None:
    run(trace_parent=True, headers={"traceparent": PARENT})

    (span,) = spans.get_finished_spans()
    assert f"{span.context.trace_id:032x}" == TRACE
    assert span.links == ()


def test_span_of_a_message_without_trace_has_no_link(spans: Any) -> None:
    run()

    (span,) = spans.get_finished_spans()
    assert span.links == ()


def test_messages_published_by_a_handler_carry_its_trace(spans: Any) -> None:
    outcome = run(headers={"traceparent": PARENT})

    (span,) = spans.get_finished_spans()
    carried = (outcome.then[0].headers or {})["traceparent"]
    assert carried.split("-")[1] == f"{span.context.trace_id:032x}"


async def coroutine() -> None:
    current().then("next", "x")


def returns_coroutine() -> object:
    return coroutine()


@pytest.mark.parametrize("handler", [coroutine, returns_coroutine])
def test_coroutine_returned_by_a_handler_runs_in_the_span_of_its_message(
    spans: Any, handler: Callable[[], object]
) -> None:
    task: Any = Worker().task("q")(handler)
    message = Received(queue="q", uid="u1", body=b"{}", lease="1", delivery=1)

    outcome = asyncio.run(call_async(task, message)) if task.mode == "coroutine" else call(task, message)

    assert isinstance(outcome, Done)
    (span,) = spans.get_finished_spans()
    carried = (outcome.then[0].headers or {})["traceparent"]
    assert carried.split("-")[1] == f"{span.context.trace_id:032x}"


def test_handler_that_raises_ends_its_span_with_the_error(spans: Any) -> None:
    def handler() -> None:
        raise ValueError("no")

    task: Any = Worker().task("q")(handler)
    call(task, Received(queue="q", uid="u1", body=b"{}", lease="1", delivery=1))

    (span,) = spans.get_finished_spans()
    assert not span.status.is_ok
    assert "ValueError" in span.status.description


@pytest.mark.usefixtures("not_installed")
def test_trace_is_passed_on_without_opentelemetry() -> None:
    outcome = run(headers={"traceparent": PARENT, "other": "x"})

    assert outcome.then[0].headers == {"traceparent": PARENT}


def test_trace_is_passed_on_without_tracing_set_up() -> None:
    outcome = run(headers={"traceparent": PARENT})

    assert outcome.then[0].headers == {"traceparent": PARENT}


def test_headers_of_the_publisher_win() -> None:
    assert tracing.outgoing({"traceparent": "mine"}) == {"traceparent": "mine"}
    assert tracing.outgoing(None) is None
