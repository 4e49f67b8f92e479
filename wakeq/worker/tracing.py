"""Tracing: a message carries its trace in its headers (traceparent), and a handler runs in a span of its own.

Spans require opentelemetry-api (`pip install wakeq[otel]`). Without it the trace context is only passed on, from a
message to the messages that its handler publishes. A span is linked to that of the publisher, because a queue may hold
a message for days and one request may publish many messages. With `parent=True` it is a child instead.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

from wakeq.client.message import Received
from wakeq.worker.context import CURRENT

TRACE_HEADERS = ("traceparent", "tracestate")
NO_SPAN: AbstractContextManager[None] = nullcontext()


@cache
def _installed() -> tuple[Any, Any] | None:
    """Return the modules `trace` and `propagate`, if they are installed."""
    try:
        from opentelemetry import propagate, trace
    except ImportError:
        return None
    return trace, propagate


def _opentelemetry() -> tuple[Any, Any] | None:
    """Return these modules if the program has set up an exporter; otherwise spans would be of no use."""
    modules = _installed()
    if modules is None or isinstance(modules[0].get_tracer_provider(), modules[0].ProxyTracerProvider):
        return None
    return modules


def outgoing(headers: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return the headers of a message that is being published, with the current trace."""
    carried: dict[str, str] = {}
    if modules := _opentelemetry():
        _trace, propagate = modules
        propagate.inject(carried)
    elif handled := CURRENT.get(None):
        carried = {name: handled.headers[name] for name in TRACE_HEADERS if name in handled.headers}
    return {**carried, **(headers or {})} or None


def handling(message: Received, *, parent: bool) -> AbstractContextManager[None]:
    """Return the span in which a handler runs."""
    return _span(message, parent) if _opentelemetry() else NO_SPAN


@contextmanager
def _span(message: Received, parent: bool) -> Iterator[None]:
    modules = _opentelemetry()
    assert modules is not None
    trace, propagate = modules
    publisher = propagate.extract(dict(message.headers))
    origin = trace.get_current_span(publisher).get_span_context()
    with trace.get_tracer("wakeq").start_as_current_span(
        f"process {message.queue}",
        context=publisher if parent else None,
        kind=trace.SpanKind.CONSUMER,
        links=[trace.Link(origin)] if origin.is_valid and not parent else [],
        attributes={
            "messaging.system": "wakeq",
            "messaging.operation.type": "process",
            "messaging.destination.name": message.queue,
            "messaging.message.id": message.uid,
            "wakeq.delivery": message.delivery,
        },
    ):
        yield
