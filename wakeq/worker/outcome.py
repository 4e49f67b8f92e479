"""Outcome: how a delivery ends, and the rules by which the end of a handler becomes an outcome.

    return, exception, Retry, Snooze, Reject; the policy of the task  -->  Done, Failed, Dead, Released

Pure data, and cheap: one is made for each message, and it may travel between processes. The random number for the
jitter is passed in. The engine turns an outcome into a command.
"""

import math
import traceback
from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import Struct

from wakeq.client.arguments.spans import Span, seconds, seconds_of
from wakeq.client.message import Received, text_of_reason
from wakeq.protocol.errors import BadField
from wakeq.protocol.seconds import ms_of
from wakeq.protocol.wire.worker import codec as wire
from wakeq.protocol.wire.worker.commands import ERROR_CHARS_MAX, SECONDS_MAX

Backoff: TypeAlias = Literal["fixed", "exponential"]

# The first delay of an exponential backoff, by default.
FIRST_DELAY_S = 1.0
DELAY_S_MAX = 3600.0
# From so many milliseconds on, a random delay is a multiple of so many.
ROUND_STEPS_MS = ((10_000, 1_000), (1_000, 100), (0, 10))
EXACT_MS = ((0, 1),)
# With more doublings every delay is at its maximum, and a float would overflow.
DOUBLINGS_MAX = 60
JITTER = 0.1

# The rest is for the number of retries.
DESCRIBED_CHARS_MAX = ERROR_CHARS_MAX - 40


def checked_span(name: str, span: Span) -> float:
    """Return a span in seconds. Raise ValueError if the broker would not accept it."""
    try:
        span_s = seconds(name, span)
    except BadField:
        span_s = -1
    if not 0 <= span_s <= SECONDS_MAX:
        raise ValueError(f"{name} is {span!r}; it is a number of seconds, 0 to {SECONDS_MAX}, or a timedelta")
    return span_s


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
        delay: Span | None = None,
        backoff: Backoff = "fixed",
        delay_max: Span = DELAY_S_MAX,
        jitter: float = JITTER,
    ) -> None:
        super().__init__(reason)
        if max is not None and (not isinstance(max, int) or max < 0):
            raise ValueError(f"Retry: max is {max!r}; it is a number of retries, 0 or more")
        delay_s = None if delay is None else checked_span("Retry: delay", delay)
        if backoff not in ("fixed", "exponential"):
            raise ValueError(f"Retry: backoff is {backoff!r}; it is 'fixed' or 'exponential'")
        if not isinstance(jitter, int | float) or not 0 <= jitter <= 1:
            raise ValueError(f"Retry: jitter is {jitter!r}; it is the random part of the delay, 0 to 1")
        self.max = max
        self.delay = FIRST_DELAY_S if delay_s is None and backoff == "exponential" else delay_s
        self.backoff = backoff
        self.delay_max = checked_span("Retry: delay_max", delay_max)
        self.jitter = jitter

    def is_over(self, failures: int) -> bool:
        """Return whether a failure after so many earlier ones is the last."""
        return self.max is not None and failures >= self.max

    def delay_after(self, failures: int, *, drawn: float) -> float | None:
        """Return the seconds until the next try, after so many earlier failures; None: by the queue's policy.

        `drawn` is a random number between 0 and 1. A delay with a random part is rounded up to a round number, because
        messages with the same delay share one command.
        """
        if self.delay is None:
            return None
        grown = self.delay * 2.0 ** min(failures, DOUBLINGS_MAX) if self.backoff == "exponential" else self.delay
        bounded = min(grown, self.delay_max) if self.backoff == "exponential" else grown
        delay_ms = ms_of(bounded * (1.0 - self.jitter * drawn))
        steps_ms = ROUND_STEPS_MS if self.jitter else EXACT_MS
        step_ms = next(step_ms for least_ms, step_ms in steps_ms if delay_ms >= least_ms)
        return seconds_of(math.ceil(delay_ms / step_ms) * step_ms)

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

    def __init__(self, seconds: Span, reason: object = "") -> None:
        super().__init__(reason)
        self.seconds = checked_span("Snooze: seconds", seconds)


class Reject(HandlerDecision):
    """Never: make the message a dead letter at once, with this reason."""

    def __init__(self, reason: object) -> None:
        super().__init__(reason)


class Done(Struct, frozen=True):
    """Acknowledge the message, and publish `then` in the same step."""

    then: tuple[wire.Followup, ...] = ()


class Failed(Struct, frozen=True):
    """Report a failure. The message is redelivered after `delay_s`; with None, by the policy of the queue."""

    error: str
    delay_s: float | None = None


class Dead(Struct, frozen=True):
    """Make the message a dead letter: it was rejected, or no retries are left."""

    error: str
    exhausted: bool = False


class Released(Struct, frozen=True):
    """Release the message; this counts as no failure."""

    reason: str
    delay_s: float = 0


NotDone: TypeAlias = Failed | Dead | Released
Outcome: TypeAlias = Done | NotDone

DONE = Done()


def nack_of(outcome: NotDone) -> dict[str, Any]:
    """Return the outcome as the arguments of a client's nack."""
    match outcome:
        case Failed():
            return {"delay": outcome.delay_s, "error": outcome.error}
        case Dead():
            return {"error": outcome.error, "dead": True} | ({"exhausted": True} if outcome.exhausted else {})
        case Released():
            return {"delay": outcome.delay_s, "error": outcome.reason, "failed": False}


def log_arguments(message: Received, outcome: NotDone) -> tuple[str, str, str, str, int, str]:
    """Return the arguments of a log call for a message that was not acknowledged: the format and its values."""
    match outcome:
        case Failed(delay_s=None):
            what_happened = "failed, will be retried by the policy of its queue"
        case Failed(delay_s=delay_s):
            what_happened = f"failed, will be retried in {delay_s:g} s"
        case Dead():
            what_happened = "became a dead letter"
        case Released(delay_s=delay_s):
            what_happened = f"was postponed for {delay_s:g} s"
    reason = outcome.reason if isinstance(outcome, Released) else outcome.error
    return ("%s: %s %s (delivery %d): %s", message.queue, message.uid, what_happened, message.delivery, reason)


def outcome_of(error: BaseException, policy: Retry | None, *, failures: int, drawn: float) -> NotDone:
    """Return the outcome for an exception of a handler, after so many earlier failures of the message.

    `drawn` is a random number between 0 and 1, for the jitter.
    """
    match error:
        case Snooze():
            return Released(error.reason or "snoozed", error.seconds)
        case Reject():
            return Dead(error.reason)
        case Retry():
            return failed(error.reason or "to be tried again", error.filled_from(policy), failures, drawn)
        case _:
            return failed(described(error), policy, failures, drawn)


def failed(error: str, policy: Retry | None, failures: int, drawn: float) -> Failed | Dead:
    """Return the outcome for a failure under a retry policy; without one, the queue's own policy decides."""
    if policy is None:
        return Failed(error)
    if policy.is_over(failures):
        return Dead(
            f"still failing after {failures} {'retry' if failures == 1 else 'retries'}: {error}", exhausted=True
        )
    return Failed(error, policy.delay_after(failures, drawn=drawn))


def described(error: BaseException) -> str:
    """Return an exception as text: its type, its message, and the place where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    # An exception without a message would end with a colon.
    text = text_of_reason(error).removesuffix(": ")
    return text[: DESCRIBED_CHARS_MAX - len(place)] + text_of_reason(place)
