"""Retry, Snooze, Reject: the exceptions with which a handler decides how its message ends.

A Retry is also the policy of a task. In both uses it states how often to try again, and after which delays. Pure: the
random number for the jitter is passed in.
"""

import math
from typing import ClassVar, Literal, TypeAlias

from wakeq.client.message import text_of_reason
from wakeq.protocol.wire.worker.commands import SECONDS_MAX

Backoff: TypeAlias = Literal["fixed", "exponential"]

# The first delay of an exponential backoff, by default.
FIRST_DELAY_S = 1.0
DELAY_S_MAX = 3600.0
# With more doublings every delay is at its maximum, and a float would overflow.
DOUBLINGS_MAX = 60
JITTER = 0.1


def check_span(name: str, span_s: object) -> None:
    """Raise ValueError if the broker would not accept this duration."""
    if not isinstance(span_s, int | float) or not 0 <= span_s <= SECONDS_MAX:
        raise ValueError(f"{name} is {span_s!r}; it is a number of seconds, 0 to {SECONDS_MAX}")


class HandlerDecision(Exception):
    """Base of the exceptions with which a handler decides how its message ends. Not a WakeqError: nothing is wrong."""

    # The handler itself asked for this end, so the log shows no warning.
    is_deliberate: ClassVar[bool] = True

    def __init__(self, reason: object) -> None:
        # The reason may be an exception, too.
        self.reason = text_of_reason(reason)
        super().__init__(self.reason)


class Retry(HandlerDecision):
    """Try again: as the policy of a task for any exception of its handler; raised, for this delivery.

    `max` is the number of retries; the failure after the last retry makes a dead letter. `delay` is the time until the
    next delivery, in seconds; with `backoff="exponential"` it doubles with each failure, up to `delay_max`. `jitter` is
    the random part of the delay. Values that a raised Retry omits are taken from the task's policy, and values that
    both omit from the policy of the queue.
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
            raise ValueError(f"Retry: jitter is {jitter!r}; it is the random part of the delay, 0 to 1")
        self.max = max
        self.delay = FIRST_DELAY_S if delay is None and backoff == "exponential" else delay
        self.backoff = backoff
        self.delay_max = delay_max
        self.jitter = jitter

    def is_over(self, failures: int) -> bool:
        """Return whether a failure after so many earlier ones is the last."""
        return self.max is not None and failures >= self.max

    def delay_after(self, failures: int, *, drawn: float) -> int | None:
        """Return the whole seconds until the next try, after so many earlier failures; None: by the queue's policy.

        `drawn` is a random number between 0 and 1.
        """
        if self.delay is None:
            return None
        grown = self.delay * 2.0 ** min(failures, DOUBLINGS_MAX) if self.backoff == "exponential" else self.delay
        bounded = min(grown, self.delay_max) if self.backoff == "exponential" else grown
        return math.ceil(bounded * (1.0 - self.jitter * drawn))

    def filled_from(self, policy: "Retry | None") -> "Retry":
        """Return this Retry with omitted values taken from the policy."""
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


# The policy of a task by default; it lasts for nine hours.
RETRY = Retry(max=20, backoff="exponential", delay=FIRST_DELAY_S)


class Snooze(HandlerDecision):
    """Not now: redeliver the message after `seconds`. This delivery does not count as a failure."""

    def __init__(self, seconds: float, reason: object = "") -> None:
        super().__init__(reason)
        check_span("Snooze: seconds", seconds)
        self.seconds = math.ceil(seconds)


class Reject(HandlerDecision):
    """Never: make the message a dead letter at once, with this reason."""

    def __init__(self, reason: object) -> None:
        super().__init__(reason)
