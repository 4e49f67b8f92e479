"""Metrics: what a program's tasks publish and handle, as instruments of OpenTelemetry.

    messaging.client.sent.messages         messages published by tasks
    messaging.client.operation.duration    how long a publish took, in seconds
    messaging.client.consumed.messages     messages whose handlers have begun
    messaging.process.duration             how long handlers took, in seconds
    wakeq.worker.running                   handlers that run now

They require opentelemetry-api (`pip install wakeq[otel]`) and a program that has set up a MeterProvider. Names and
attributes follow the semantic conventions of messaging; `wakeq.outcome` says how a message ended. Nothing here may
raise into a handler.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

from wakeq.worker.hooks import Began, Event
from wakeq.worker.outcome import Dead, Done, Failed, Outcome

NO_METRICS: AbstractContextManager[None] = nullcontext()
# The boundaries that the conventions recommend, in seconds, and longer ones for tasks.
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 300, 1800)


class Instruments:
    """The instruments of one MeterProvider."""

    def __init__(self, provider: Any) -> None:
        meter = provider.get_meter("wakeq")
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages that tasks have published."
        )
        self._sending_s = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "How long a publish took.",
            explicit_bucket_boundaries_advisory=BUCKETS_S,
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages whose handlers have begun."
        )
        self._processing_s = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "How long handlers took.",
            explicit_bucket_boundaries_advisory=BUCKETS_S,
        )
        self._running = meter.create_up_down_counter("wakeq.worker.running", "{message}", "Handlers that run now.")

    @contextmanager
    def sending(self, queue: str, count: int) -> Iterator[None]:
        """Measure a publish of so many messages."""
        attributes = _attributes(queue, "publish", "send")
        began_s = time.perf_counter()
        try:
            yield
        except BaseException as error:
            attributes["error.type"] = getattr(error, "code", type(error).__name__)
            raise
        finally:
            self._sending_s.record(time.perf_counter() - began_s, attributes)
            self._sent.add(count, attributes)

    def heard(self, event: Event) -> None:
        """Count what a handler does. May be called in any thread."""
        attributes = _attributes(event.message.queue, "process", "process")
        if isinstance(event, Began):
            self._consumed.add(1, attributes)
            self._running.add(1, attributes)
            return
        self._running.add(-1, attributes)
        self._processing_s.record(event.duration_s, attributes | _ending(event.outcome))


def _attributes(queue: str, name: str, kind: str) -> dict[str, Any]:
    return {
        "messaging.system": "wakeq",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": queue,
    }


def _ending(outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case Done():
            return {"wakeq.outcome": "done"}
        case Failed():
            return {"wakeq.outcome": "failed", "error.type": "failed"}
        case Dead():
            return {"wakeq.outcome": "dead letter", "error.type": "dead letter"}
        case _:
            return {"wakeq.outcome": "released"}


@cache
def _installed() -> Any:
    """Return the module `metrics`, if it is installed."""
    try:
        from opentelemetry import metrics
    except ImportError:
        return None
    return metrics


@cache
def _instruments_of(provider: Any) -> Instruments:
    return Instruments(provider)


def _instruments() -> Instruments | None:
    """Return the instruments if the program has set up a MeterProvider; otherwise they would be of no use."""
    metrics = _installed()
    if metrics is None:
        return None
    provider = metrics.get_meter_provider()
    # The providers of the API itself measure nothing.
    if type(provider).__module__.startswith("opentelemetry.metrics."):
        return None
    return _instruments_of(provider)


def sending(queue: str, count: int) -> AbstractContextManager[None]:
    """Return the block in which a publish of so many messages is measured."""
    instruments = _instruments()
    return instruments.sending(queue, count) if instruments else NO_METRICS


def listener() -> Callable[[Event], None] | None:
    """Return the listener that measures handlers, if the program has set up metrics."""
    instruments = _instruments()
    return instruments.heard if instruments else None
