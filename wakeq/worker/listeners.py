"""Listeners: tells the listeners of tasks what happens to each message, on a thread that does nothing else.

    pools, engine  --Began, Ended-->  Listeners  -->  the listeners of the task, the metrics

So a listener needs no locks, and one that takes long delays neither handlers nor leases. Events wait in a queue with a
bound; when it is full, new ones are dropped and counted.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from wakeq.worker.hooks import Event

log = logging.getLogger("wakeq.worker")

EVENTS_MAX = 100_000
# At the end of a run the listeners have so much time to hear the last events.
CLOSE_S = 5.0


class Listeners:
    """The thread of the listeners, for one run of a worker."""

    def __init__(self, further: Sequence[Callable[[Event], object]] = ()) -> None:
        """`further` are called with the events of all tasks; they must not raise."""
        self._further = further
        # None ends the thread.
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        # The number of events that found the queue full since the last warning.
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="wakeq-listeners", daemon=True)
        self._thread.start()

    def put(self, event: Event) -> None:
        """Tell of an event soon. May be called in any thread."""
        if self._events.qsize() < EVENTS_MAX:
            self._events.put(event)
        else:
            self._dropped += 1

    def close(self) -> None:
        """Tell of the events so far, and end the thread."""
        self._events.put(None)
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while (event := self._events.get()) is not None:
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                log.warning("the listeners are too slow: they were not told of %d events", dropped)
            event.task.hooks.tell(event)
            for listener in self._further:
                listener(event)
