"""Level: one number for what a release can read: entries of the log, what peers say, images of the state.

    an entry --> the level that every node must know before it may stand in a log
    the level of a cluster --> whether this release can belong to it

A cluster works at a level that all of its members know, so that nodes of neighbouring releases talk to each other
while they are upgraded one by one (docs/internals/raft.md, "Levels").  What is new in a release gets the next number
here, and nothing else asks for it: an entry of a higher level must never be proposed while the cluster's is lower.
"""

from typing import Final

from wakeq.protocol.errors import WrongVersion
from wakeq.protocol.log.entries import Ack, Claim, Entry, PauseQueue, Requeued, Stash, Unstash, UpdateQueue

LEVEL: Final = 3  # the highest that this release knows
LEVEL_MIN: Final = 1  # the lowest at which it can work

STAGING: Final = 2  # staged claims and stashes
OPERATING: Final = 2  # a queue is paused, messages are moved, or let go at once
PASSING_ON: Final = 3  # a follower passes on to the leader that an operator wants another one
SLEEPERS: Final = 3  # the wake policy `sleeper`; where it is left out, as of a new queue, each release has its own


def level_of(entry: Entry) -> int:
    """Return the level from which on an entry may stand in a log."""
    match entry:
        case Claim() | Stash() | Unstash():
            return STAGING
        case PauseQueue() | Requeued() | Ack(moved=True):
            return OPERATING
        case UpdateQueue(changes={"wake": "sleeper"}):
            return SLEEPERS
    return LEVEL_MIN


def check_level(level: int, where: object) -> None:
    """Refuse a cluster that works at a level of which this release knows nothing."""
    if level > LEVEL:
        raise WrongVersion(
            f"{where}: the cluster works at level {level}, this release knows levels up to {LEVEL}; "
            "start the release that the other nodes have, or a later one"
        )
