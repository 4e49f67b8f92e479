"""PendingCommand: a command whose answer is outstanding, when that answer is due, and whether it may be sent twice.

    command, now --> PendingCommand --> (a new connection) --> sent again, a fetch with the rest of its wait

Pure: the caller passes the time in.
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


class PendingCommand(msgspec.Struct, gc=False):
    """A command that was sent, or will be sent on the next connection."""

    command: Command
    # The answer timeout counts from this moment. For a fetch it is the end of its wait.
    due_s: float
    # For a fetch: the moment until which its caller wants to wait.
    wait_until_s: float
    # The broker refused it in a way that proves that nothing was done.
    refused: bool = False

    @classmethod
    def sent_at(cls, command: Command, now_s: float) -> "PendingCommand":
        wait_until_s = now_s + command.wait if isinstance(command, Fet) else now_s
        return cls(command, wait_until_s, wait_until_s)

    def restart(self, now_s: float) -> None:
        """Prepare to send the command again: a fetch for the rest of its wait, and with new time to answer."""
        self.due_s = now_s
        if isinstance(self.command, Fet):
            left_s = max(0.0, self.wait_until_s - now_s)
            self.due_s += left_s
            self.command = msgspec.structs.replace(self.command, wait=left_s)


def is_repeatable(command: Command) -> bool:
    """Return whether doing the command twice has the same effect as doing it once."""
    # With a lease, a second NACK is refused as stale or changes nothing.
    if isinstance(command, Nack):
        return command.lease is not None or command.leases is not None
    return isinstance(command, REPEATABLE)
