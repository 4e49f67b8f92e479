"""Tracing: the trace of a message travels in its headers (traceparent), and a handler runs in a span of its own.

Spans need opentelemetry-api (`pip install wakeq[otel]`); without it the trace context is only passed on, from a message
to what its handler publishes.  A span is linked to the publisher's: a queue may hold a message for days, and many
messages may come of one request; `parent=True` makes it a child instead.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

from wakeq.client.message import Received
from wakeq.worker.context import CURRENT

TRACE_HEADERS = ("traceparent", "tracestate")
NOTHING: AbstractContextManager[None] = nullcontext()


@cache
def _installed() -> tuple[Any, Any] | None:
    """The modules `trace` and `propagate`, if there are any."""
    try:
        from opentelemetry import propagate, trace
    except ImportError:
        return None
    return trace, propagate


def _opentelemetry() -> tuple[Any, Any] | None:
    """The same, if the program has said where its spans go; else they would be made for nobody."""
    found = _installed()
    if found is None or isinstance(found[0].get_tracer_provider(), found[0].ProxyTracerProvider):
        return None
    return found


def outgoing(headers: Mapping[str, str] | None) -> dict[str, str] | None:
    """The headers of a message that is published here and now, with the trace it belongs to."""
    carried: dict[str, str] = {}
    if found := _opentelemetry():
        _trace, propagate = found
        propagate.inject(carried)
    elif handled := CURRENT.get(None):
        carried = {name: handled.headers[name] for name in TRACE_HEADERS if name in handled.headers}
    return {**carried, **(headers or {})} or None


def handling(message: Received, *, parent: bool) -> AbstractContextManager[None]:
    """The span in which a handler runs."""
    return _span(message, parent) if _opentelemetry() else NOTHING


@contextmanager
def _span(message: Received, parent: bool) -> Iterator[None]:
    found = _opentelemetry()
    assert found is not None
    trace, propagate = found
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
