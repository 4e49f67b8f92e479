"""Outcome: how a delivery ends, and the rules by which the end of a handler becomes an outcome.

Pure data, and cheap: one is made for each message, and it may travel between processes. The engine turns it into a
command.
"""

import traceback
from typing import Any, TypeAlias

from msgspec import Struct

from wakeq.client.message import Received, text_of_reason
from wakeq.protocol.wire.worker import codec as wire
from wakeq.protocol.wire.worker.commands import ERROR_CHARS_MAX
from wakeq.worker.retry import Reject, Retry, Snooze

# The rest is for the number of retries.
DESCRIBED_CHARS_MAX = ERROR_CHARS_MAX - 40


class Done(Struct, frozen=True):
    """Acknowledge the message, and publish `then` in the same step."""

    then: tuple[wire.Followup, ...] = ()


class Failed(Struct, frozen=True):
    """Report a failure. The message is redelivered after `delay_s`; with None, by the policy of the queue."""

    error: str
    delay_s: int | None = None


class Dead(Struct, frozen=True):
    """Make the message a dead letter: it was rejected, or no retries are left."""

    error: str
    exhausted: bool = False


class Released(Struct, frozen=True):
    """Release the message; this counts as no failure."""

    reason: str
    delay_s: int = 0


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
            what_happened = f"failed, will be retried in {delay_s} s"
        case Dead():
            what_happened = "became a dead letter"
        case Released(delay_s=delay_s):
            what_happened = f"was postponed for {delay_s} s"
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
