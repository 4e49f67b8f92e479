"""BulkClient: a blocking client that also speaks in blocks, and stages what it works on (docs/internals/staging.md).

    columns of many messages  -->  one frame  -->  broker          broker  -->  one frame  -->  wire.Block

Blocks are passed on as they are: whoever makes or reads columns uses `wakeq.protocol.wire.worker.blocks`, or gives
their buffers to Arrow.  Names of sources, stashes and writers are the caller's; repeating a call changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from wakeq.client.blocking import Client
from wakeq.client.core.requests import Request, expect
from wakeq.protocol.wire.worker import codec as wire


@dataclass(frozen=True, slots=True)
class Columns:
    """A block to be sent: how many messages, what their columns are called, their buffers."""

    rows: int
    names: Sequence[str]
    block: bytes

    def fields(self) -> dict[str, Any]:
        """As the fields of a command."""
        return {"rows": self.rows, "columns": list(self.names), "block": self.block}


@dataclass(frozen=True, slots=True)
class Claimed:
    """What an epoch holds: a number of messages for each slice."""

    epoch: int
    sizes: Sequence[int] = field(default_factory=list)


class BulkClient(Client):
    """See the head of this file."""

    def publish_block(
        self,
        queue: str,
        columns: Columns,
        *,
        delay: int = 0,
        timeout: int | None = None,
        expires: int = 0,
        priority: int = 0,
        id: str | None = None,
    ) -> str:
        """Publish all of them or none, in one entry of the log; the uid of the first comes back, the others follow it.

        What is said here is the same for every message; a column wins.
        """
        command = wire.PubBlock(
            qname=queue, delay=delay, timeout=timeout, expires=expires, priority=priority, id=id, **columns.fields()
        )
        return self._caller.call(Request(command, lambda reply: expect(reply, wire.Okrows).uid or ""))

    def fetch_block(self, queue: str, count: int) -> wire.Block | None:
        """Up to `count` messages, leased to us; None if there is none."""
        return self._caller.call(Request(wire.FetBlock(qname=queue, count=count), _read_block))

    def peek_block(self, queue: str, *, after: int = 0, last: int = 0, count: int = 1000) -> wire.Block:
        """Look at messages in the order of publication; `next` of what comes back is the `after` to go on with."""
        command = wire.PeekBlock(qname=queue, after=after, last=last, count=count)
        return self._caller.call(Request(command, lambda reply: expect(reply, wire.Block)))

    # Claims -----------------------------------------------------------------------------------------------

    def stage(
        self, queue: str, source: str, epoch: int, *, count: int, slices: int = 1, timeout: int = 60
    ) -> Claimed | None:
        """Claim up to `count` messages for an epoch, for `timeout` seconds; None if nothing is in line.

        An epoch that is open is answered as the first time; one that is over is EpochExpired.
        """
        about = {"count": count, "slices": slices, "timeout": timeout}

        def read(reply: wire.Reply) -> Claimed | None:
            if isinstance(reply, wire.Nomsg):
                return None
            return Claimed(epoch, expect(reply, wire.Okstage).sizes)

        return self._caller.call(Request(wire.Stage(qname=queue, source=source, epoch=epoch, **about), read))

    def read_slice(self, queue: str, source: str, epoch: int, slice: int, *, offset: int, count: int) -> wire.Block:
        """Messages of a slice from `offset` on; nothing changes.  `next` is the offset to go on with, 0 at the end."""
        about = {"slice": slice, "offset": offset, "count": count}
        command = wire.Slice(qname=queue, source=source, epoch=epoch, raw=True, **about)
        return self._caller.call(Request(command, lambda reply: expect(reply, wire.Block)))

    def renew(self, queue: str, source: str, *, timeout: int) -> int:
        """Keep the open epochs of a source for `timeout` seconds from now; how many there are."""
        command = wire.Renew(qname=queue, source=source, timeout=timeout)
        return self._caller.call(Request(command, lambda reply: expect(reply, wire.Okrenew).epochs))

    def settle(self, queue: str, source: str, epoch: int) -> int:
        """Acknowledge every open epoch up to this one; how many messages that were."""
        command = wire.SettleEpochs(qname=queue, source=source, epoch=epoch)
        return self._caller.call(Request(command, lambda reply: expect(reply, wire.Oksettle).count))

    def next_epoch(self, queue: str, source: str) -> int:
        """The first epoch of a source that is open, or else the one to stage next."""
        command = wire.SettleEpochs(qname=queue, source=source, epoch=0)
        return self._caller.call(Request(command, lambda reply: expect(reply, wire.Oksettle).next or 1))

    # Stashes ----------------------------------------------------------------------------------------------

    def stash(
        self,
        queue: str,
        stash: str,
        part: int,
        columns: Columns,
        *,
        keep: int,
        delay: int = 0,
        timeout: int | None = None,
        expires: int = 0,
        priority: int = 0,
    ) -> None:
        """Put a part of a stash aside for `keep` seconds; nobody sees it until the stash is published."""
        command = wire.Stash(
            qname=queue, stash=stash, part=part, keep=keep,
            delay=delay, timeout=timeout, expires=expires, priority=priority, **columns.fields(),
        )  # fmt: skip
        self._caller.call(Request(command, lambda reply: expect(reply, wire.Okrows)))

    def publish_stashes(self, queue: str, stashes: Sequence[tuple[str, int]], *, writer: str, epoch: int = 0) -> int:
        """Publish stashes, each with the number of its messages, in one step; 0 if the epoch was published before.

        Without an epoch the writer is a job: it publishes once, and is forgotten after some minutes.
        """
        command = wire.Unstash(qname=queue, stashes=list(stashes), writer=writer, epoch=epoch)
        return self._caller.call(Request(command, lambda reply: expect(reply, wire.Okrows).rows))

    def writer_epoch(self, queue: str, writer: str) -> int:
        """The last epoch that a writer has published; 0 if none."""
        command = wire.Unstash(qname=queue, stashes=[], writer=writer)
        return self._caller.call(Request(command, lambda reply: expect(reply, wire.Okrows).epoch or 0))

    def drop_stashes(self, queue: str, stashes: Sequence[tuple[str, int]]) -> None:
        """Forget stashes that nobody is going to publish."""
        command = wire.Unstash(qname=queue, stashes=list(stashes))
        self._caller.call(Request(command, lambda reply: expect(reply, wire.Okrows)))


def _read_block(reply: wire.Reply) -> wire.Block | None:
    return None if isinstance(reply, wire.Nomsg) else expect(reply, wire.Block)
