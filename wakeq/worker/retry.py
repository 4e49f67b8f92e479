"""Retry, Snooze, Reject: what a handler says when it does not simply return.

Each is an exception that a handler raises; a Retry is also the policy of a task, so both ways mean the same:
how often to try again, and after how long.  Pure: what is drawn for the jitter is passed in.
"""

import math
from typing import ClassVar, Literal, TypeAlias

from wakeq.client.core.encoding import text_of_reason
from wakeq.protocol.wire.worker.commands import SECONDS_MAX

Backoff: TypeAlias = Literal["fixed", "exponential"]

FIRST_DELAY_S = 1.0  # of an exponential backoff that does not say
DELAY_S_MAX = 3600.0
DOUBLINGS_MAX = 60  # beyond it every delay is at its maximum, and a float at its end
JITTER = 0.1


def check_span(what: str, span_s: object) -> None:
    """Raise ValueError if this is no span of time that the broker knows."""
    if not isinstance(span_s, int | float) or not 0 <= span_s <= SECONDS_MAX:
        raise ValueError(f"{what} is {span_s!r}; it is a number of seconds, 0 to {SECONDS_MAX}")


class HandlerDecision(Exception):
    """Root of what a handler raises to say how its message ends.  Not a WakeqError: nothing went wrong in wakeq."""

    is_asked_for: ClassVar[bool] = True  # by the handler itself: what its log says is no warning

    def __init__(self, reason: object) -> None:
        self.reason = text_of_reason(reason)  # people give exceptions, too
        super().__init__(self.reason)


class Retry(HandlerDecision):
    """Try again: as the policy of a task, for whatever the handler raises; raised, for this delivery.

    `max` is how many failures are followed by another try; the one after them makes a dead letter.  `delay` is how
    long the message stays away, in seconds; with `backoff="exponential"` it doubles with each failure, up to
    `delay_max`.  `jitter` is the part of it that is drawn.  What a raised Retry leaves out is taken from the task's
    policy, and what that leaves out from the policy of the queue.
    """

    def __init__(
        self,
        reason: object = "",
        *,
        max: int | None = None,
        delay: float | None = None,
        backoff: Backoff = "fixed",
        delay_max: float = DELAY_S_MAX,
        jitter: float = JITTER,
    ) -> None:
        super().__init__(reason)
        if max is not None and (not isinstance(max, int) or max < 0):
            raise ValueError(f"Retry: max is {max!r}; it is a number of retries, 0 or more")
        check_span("Retry: delay", 0 if delay is None else delay)
        check_span("Retry: delay_max", delay_max)
        if backoff not in ("fixed", "exponential"):
            raise ValueError(f"Retry: backoff is {backoff!r}; it is 'fixed' or 'exponential'")
        if not isinstance(jitter, int | float) or not 0 <= jitter <= 1:
            raise ValueError(f"Retry: jitter is {jitter!r}; it is a part of the delay, 0 to 1")
        self.max = max
        self.delay = FIRST_DELAY_S if delay is None and backoff == "exponential" else delay
        self.backoff = backoff
        self.delay_max = delay_max
        self.jitter = jitter

    def over(self, failures: int) -> bool:
        """Whether a failure that comes after so many others is the last."""
        return self.max is not None and failures >= self.max

    def delay_after(self, failures: int, *, drawn: float) -> int | None:
        """Whole seconds until the next try after so many failures before this one; None: the queue's policy says.

        `drawn` is a random number of 0..1.
        """
        if self.delay is None:
            return None
        grown = self.delay * 2.0 ** min(failures, DOUBLINGS_MAX) if self.backoff == "exponential" else self.delay
        bounded = min(grown, self.delay_max) if self.backoff == "exponential" else grown
        return math.ceil(bounded * (1.0 - self.jitter * drawn))

    def filled_from(self, policy: "Retry | None") -> "Retry":
        """This one, with what it leaves out taken from the policy."""
        if policy is None or (self.max is not None and self.delay is not None):
            return self
        timing = self if self.delay is not None else policy
        return Retry(
            self.reason,
            max=policy.max if self.max is None else self.max,
            delay=timing.delay,
            backoff=timing.backoff,
            delay_max=timing.delay_max,
            jitter=timing.jitter,
        )


RETRY = Retry(max=20, backoff="exponential", delay=FIRST_DELAY_S)  # of a task that does not say: for nine hours


class Snooze(HandlerDecision):
    """Not now: the message comes back after `seconds`, and this delivery is not counted as a failure."""

    def __init__(self, seconds: float, reason: object = "") -> None:
        super().__init__(reason)
        check_span("Snooze: seconds", seconds)
        self.seconds = math.ceil(seconds)


class Reject(HandlerDecision):
    """Never: the message goes to the dead-letter queue at once, with this reason."""

    def __init__(self, reason: object) -> None:
        super().__init__(reason)
