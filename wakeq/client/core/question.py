"""Question: a command under way, when its answer is due, and whether it may be asked twice.  Pure.

command, now --> Question --> (a new connection) --> asked once more, for what is left of its wait
"""

import msgspec

from wakeq.protocol.wire.worker.codec import (
    Ack,
    Command,
    Fet,
    FetBlock,
    Hello,
    List,
    Nack,
    Peek,
    PeekBlock,
    Ping,
    Pub,
    PubBlock,
    Renew,
    SettleEpochs,
    Slice,
    Stage,
    Stash,
    Stats,
    Sub,
    Touch,
    Uns,
    Unstash,
    Update,
)

REPEATABLE = (
    Pub, Fet, Ack, Touch, Sub, Uns, Ping, Hello, List, Stats, Peek, Update,
    PubBlock, FetBlock, PeekBlock, Stage, Slice, Renew, SettleEpochs, Stash, Unstash,
)  # fmt: skip


class Question(msgspec.Struct, gc=False):
    """A command under way.  Its answer is due from `due_s` on; `refused`: it was surely not done."""

    command: Command
    due_s: float
    until_s: float  # a fetch: when its asker does not want to wait any longer
    refused: bool = False


def question_of(command: Command, now_s: float) -> Question:
    """A command that is asked now."""
    until_s = now_s + command.wait if isinstance(command, Fet) else now_s
    return Question(command, until_s, until_s)


def renew(question: Question, now_s: float) -> None:
    """It is asked once more: for what is left of its wait, and with new time to answer."""
    question.due_s = now_s
    if isinstance(question.command, Fet):
        left_s = max(0.0, question.until_s - now_s)
        question.due_s += left_s
        question.command = msgspec.structs.replace(question.command, wait=left_s)


def repeatable(command: Command) -> bool:
    """Whether doing it twice is the same as doing it once."""
    if isinstance(command, Nack):  # with its lease the second one is stale, or changes nothing
        return command.lease is not None or command.leases is not None
    return isinstance(command, REPEATABLE)
