"""Listeners: tells the listeners of tasks what happens to each message, on a thread that does nothing else.

    pools, engine  --Began, Ended-->  Listeners  -->  the measures, at once
                                      its thread -->  the listeners of the task

So a listener needs no locks, and one that takes long delays neither handlers nor leases. Events wait in a queue with
bounds; when it is full, new ones are dropped and counted. The measures are told of each event, because numbers that go
up and down would stay wrong for ever; they must be quick and fit for several threads.
"""

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

from wakeq.worker.hooks import Began, Event, EventListener, tell_one
from wakeq.worker.outcome import Done

log = logging.getLogger("wakeq.worker")

EVENTS_MAX = 100_000
# The bodies that the waiting events keep in memory; one for the begin and the end of a message counts twice.
BYTES_MAX = 32 << 20
# At the end of a run the listeners have so much time to hear the last events.
CLOSE_S = 5.0


class Listeners:
    """The thread of the listeners, for one run of a worker."""

    def __init__(self, measures: Sequence[EventListener] = ()) -> None:
        # They are called with the events of all tasks.
        self._measures = measures
        # None ends the thread.
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        # Guards the two numbers below.
        self._lock = threading.Lock()
        # The bytes of the bodies of the events that wait.
        self._waiting_bytes = 0
        # The number of events that found the queue full since the last warning.
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="wakeq-listeners", daemon=True)
        self._thread.start()

    def put(self, event: Event) -> None:
        """Measure an event, and tell of it soon. May be called in any thread."""
        for measure in self._measures:
            tell_one(measure, event)
        if not event.task.hooks.listeners:
            return
        with self._lock:
            if self._events.qsize() < EVENTS_MAX and self._waiting_bytes < BYTES_MAX:
                self._waiting_bytes += _bytes_of(event)
                self._events.put(event)
            else:
                self._dropped += 1

    def close(self) -> None:
        """Tell of the events so far, and end the thread."""
        self._events.put(None)
        self._thread.join(CLOSE_S)
        with suppress(Empty):
            while self._events.get_nowait() is not None:
                with self._lock:
                    self._dropped += 1
        # The one for the thread may have been removed.
        self._events.put(None)
        self._warn_of_dropped()

    def _run(self) -> None:
        while (event := self._events.get()) is not None:
            with self._lock:
                self._waiting_bytes -= _bytes_of(event)
            self._warn_of_dropped()
            event.task.hooks.tell(event)

    def _warn_of_dropped(self) -> None:
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        if dropped:
            log.warning("the listeners are too slow: they were not told of %d events", dropped)


def _bytes_of(event: Event) -> int:
    """Return the size of the body of the message, and of the bodies of its follow-ups."""
    size = len(event.message.body)
    if isinstance(event, Began) or not isinstance(event.outcome, Done):
        return size
    return size + sum(len(followup.message or followup.msg or "") for followup in event.outcome.then)
