"""Outcome: what is to become of a delivery, and the rules by which a handler's end turns into one.

Pure data, and cheap: one is made for each message and may travel between processes.  The engine turns it into a
command; a test may look at it as it is.
"""

import traceback
from typing import Any, TypeAlias

from msgspec import Struct

from wakeq.client.core.encoding import text_of_reason
from wakeq.client.message import Received
from wakeq.protocol.wire.worker import codec as wire
from wakeq.protocol.wire.worker.commands import ERROR_CHARS_MAX
from wakeq.worker.retry import Reject, Retry, Snooze

DESCRIBED_CHARS_MAX = ERROR_CHARS_MAX - 40  # the rest is for how many retries there were


class Done(Struct, frozen=True):
    """Acknowledge, and publish what follows in the same step."""

    then: tuple[wire.Followup, ...] = ()


class Failed(Struct, frozen=True):
    """Give it back as a failure; None: after the delay that the queue's policy says."""

    error: str
    delay_s: int | None = None


class Dead(Struct, frozen=True):
    """To the dead-letter queue: for good, or because there are no retries left."""

    error: str
    exhausted: bool = False


class Returned(Struct, frozen=True):
    """Give it back; it was not the message's fault."""

    reason: str
    delay_s: int = 0


GivenBack: TypeAlias = Failed | Dead | Returned
Outcome: TypeAlias = Done | GivenBack

DONE = Done()


def nack_of(outcome: GivenBack) -> dict[str, Any]:
    """The same as the arguments of a client's nack."""
    match outcome:
        case Failed():
            return {"delay": outcome.delay_s, "error": outcome.error}
        case Dead():
            return {"error": outcome.error, "dead": True} | ({"exhausted": True} if outcome.exhausted else {})
        case Returned():
            return {"delay": outcome.delay_s, "error": outcome.reason, "failed": False}


def fate_of(outcome: GivenBack) -> str:
    """What becomes of a message, for people."""
    match outcome:
        case Failed(delay_s=None):
            return "failed, to be tried again when the queue says"
        case Failed(delay_s=delay_s):
            return f"failed, to be tried again in {delay_s} s"
        case Dead():
            return "is a dead letter now"
        case Returned(delay_s=delay_s):
            return f"is put off for {delay_s} s"


def reason_of(outcome: GivenBack) -> str:
    """Why it was given back."""
    return outcome.reason if isinstance(outcome, Returned) else outcome.error


def telling(message: Received, outcome: GivenBack) -> tuple[str, str, str, str, int, str]:
    """What the log says of a message that was given back: the format, and what it is filled with."""
    facts = (message.queue, message.uid, fate_of(outcome), message.delivery, reason_of(outcome))
    return ("%s: %s %s (delivery %d): %s", *facts)


def outcome_of(error: BaseException, policy: Retry | None, *, failures: int, drawn: float) -> GivenBack:
    """What an exception of a handler means, after so many failures of the message before.

    `drawn` is a random number of 0..1 for the jitter.
    """
    match error:
        case Snooze():
            return Returned(error.reason or "snoozed", error.seconds)
        case Reject():
            return Dead(error.reason)
        case Retry():
            return failed(error.reason or "to be tried again", error.filled_from(policy), failures, drawn)
        case _:
            return failed(described(error), policy, failures, drawn)


def failed(error: str, policy: Retry | None, failures: int, drawn: float) -> Failed | Dead:
    """What a failure means under a policy; without one the queue's own policy decides."""
    if policy is None:
        return Failed(error)
    if policy.over(failures):
        return Dead(
            f"still failing after {failures} {'retry' if failures == 1 else 'retries'}: {error}", exhausted=True
        )
    return Failed(error, policy.delay_after(failures, drawn=drawn))


def described(error: BaseException) -> str:
    """The error for people: its type, what it says, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    text = text_of_reason(error).removesuffix(": ")  # it may say nothing
    return text[: DESCRIBED_CHARS_MAX - len(place)] + text_of_reason(place)
