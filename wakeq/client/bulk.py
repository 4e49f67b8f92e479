"""BulkClient: a blocking client that also sends messages in blocks, and claims them (docs/internals/staging.md).

    columns of many messages  -->  one frame  -->  broker          broker  -->  one frame  -->  wire.Block

Blocks are passed on unchanged: callers encode and decode columns with `wakeq.protocol.wire.worker.blocks`, or give the
buffers to Arrow. Callers choose the names of sources, stashes and writers. Repeating a call changes nothing.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from wakeq.client.blocking import Client
from wakeq.client.requests import Request, expect
from wakeq.protocol.wire.worker import codec as wire


@dataclass(frozen=True, slots=True)
class Columns:
    """A block to be sent: the number of messages, the names of their columns, their buffers."""

    rows: int
    names: Sequence[str]
    block: bytes

    def fields(self) -> dict[str, Any]:
        """Return the block as fields of a command."""
        return {"rows": self.rows, "columns": list(self.names), "block": self.block}


@dataclass(frozen=True, slots=True)
class Claimed:
    """The claim of an epoch: the number of messages in each slice."""

    epoch: int
    sizes: Sequence[int] = field(default_factory=list)


class BulkClient(Client):
    """A Client with blocks, claims and stashes."""

    def publish_block(
        self,
        queue: str,
        columns: Columns,
        *,
        delay: float = 0,
        timeout: float | None = None,
        expires: float = 0,
        priority: int = 0,
        id: str | None = None,
    ) -> str:
        """Publish all messages or none, in one entry of the log. Return the first uid; the others follow it.

        The options apply to every message, except where a column has a value of its own.
        """
        command = wire.PubBlock(
            qname=queue, delay=delay, timeout=timeout, expires=expires, priority=priority, id=id, **columns.fields()
        )
        return self._caller.call(Request(command, lambda reply: expect(reply, wire.Okrows).uid or ""))

    def fetch_block(self, queue: str, count: int) -> wire.Block | None:
        """Return up to `count` messages, leased to this client; None if there is none."""
        return self._caller.call(Request(wire.FetBlock(qname=queue, count=count), _read_block))

    def peek_block(
        self, queue: str, *, after: int = 0, last: int = 0, count: int = 1000, columns: Sequence[str] | None = None
    ) -> wire.Block:
        """Return messages in the order of publication. `next` of the block is the `after` of the next call.

        Of the columns, the broker sends those that are named, or all.
        """
        command = wire.PeekBlock(qname=queue, after=after, last=last, count=count, columns=_columns(columns))
        return self._caller.call(Request(command, lambda reply: expect(reply, wire.Block)))

    # Claims -----------------------------------------------------------------------------------------------

    def stage(
        self, queue: str, source: str, epoch: int, *, count: int, slices: int = 1, timeout: int = 60
    ) -> Claimed | None:
        """Claim up to `count` messages for an epoch, for `timeout` seconds; None if no message is ready.

        An open epoch is answered as it was the first time; one that is over raises EpochSettled or EpochExpired.
        """

        def read(reply: wire.Reply) -> Claimed | None:
            if isinstance(reply, wire.Nomsg):
                return None
            return Claimed(epoch, expect(reply, wire.Okstage).sizes)

        command = wire.Stage(qname=queue, source=source, epoch=epoch, count=count, slices=slices, timeout=timeout)
        return self._caller.call(Request(command, read))

    def read_slice(
        self,
        queue: str,
        source: str,
        epoch: int,
        slice: int,
        *,
        offset: int,
        count: int,
        columns: Sequence[str] | None = None,
        reader: str = "",
        batch: int = 0,
        run: str = "",
    ) -> wire.Block:
        """Return messages of a slice from `offset` on. `next` of the block is the next offset, 0 at the end.

        With `reader` the broker notes that a `run` of it reads this epoch in its `batch`, a number from 1. Then
        `publish_stashes` with the same reader, and this number as its epoch, keeps the messages from coming back.
        """
        command = wire.Slice(
            qname=queue, source=source, epoch=epoch, slice=slice, offset=offset, count=count, raw=True,
            columns=_columns(columns), reader=reader or None, batch=batch or None, run=run or None,
        )  # fmt: skip
        return self._caller.call(Request(command, lambda reply: expect(reply, wire.Block)))

    def renew(self, queue: str, source: str, *, timeout: int) -> int:
        """Extend the open epochs of a source to `timeout` seconds from now; return their number."""
        command = wire.Renew(qname=queue, source=source, timeout=timeout)
        return self._caller.call(Request(command, lambda reply: expect(reply, wire.Okrenew).epochs))

    def settle(self, queue: str, source: str, epoch: int) -> int:
        """Acknowledge every open epoch up to this one; return the number of messages."""
        command = wire.SettleEpochs(qname=queue, source=source, epoch=epoch)
        return self._caller.call(Request(command, lambda reply: expect(reply, wire.Oksettle).count))

    def next_epoch(self, queue: str, source: str) -> int:
        """Return the first open epoch of a source, or else the epoch to stage next."""
        command = wire.SettleEpochs(qname=queue, source=source, epoch=0)
        return self._caller.call(Request(command, lambda reply: expect(reply, wire.Oksettle).next or 1))

    def release(self, queue: str, source: str) -> int:
        """End all open epochs of a source; return how many messages are ready again.

        Messages whose outcome was published with `reader` are acknowledged instead.
        """
        command = wire.Release(qname=queue, source=source)
        return self._caller.call(Request(command, lambda reply: expect(reply, wire.Okrelease).count))

    # Stashes ----------------------------------------------------------------------------------------------

    def stash(
        self,
        queue: str,
        stash: str,
        part: int,
        columns: Columns,
        *,
        keep: int,
        delay: float = 0,
        timeout: float | None = None,
        expires: float = 0,
        priority: int = 0,
        writer: str = "",
        epoch: int = 0,
    ) -> None:
        """Store a part of a stash for `keep` seconds; it is invisible until the stash is published.

        With `writer` it is dropped if this epoch of the writer (0: the writer as a job) is published without it; if it
        was published already, EpochOld is raised.
        """
        command = wire.Stash(
            qname=queue, stash=stash, part=part, keep=keep, writer=writer or None, epoch=epoch,
            delay=delay, timeout=timeout, expires=expires, priority=priority, **columns.fields(),
        )  # fmt: skip
        self._caller.call(Request(command, lambda reply: expect(reply, wire.Okrows)))

    def publish_stashes(
        self,
        queue: str,
        stashes: Sequence[tuple[str, int]],
        *,
        writer: str,
        epoch: int = 0,
        reader: str = "",
        run: str = "",
        id: str = "",
    ) -> int:
        """Publish stashes, pairs of name and number of messages, in one step; 0 if the epoch was published before.

        Without an epoch the writer is a job: it publishes once, and the broker forgets it after some minutes. What else
        the writer has stashed for this epoch or an earlier one is dropped.

        With `reader`, the messages that it has read in the batch of this number do not come back from this step on:
        when their claim ends, they are acknowledged. If this `run` has read an epoch that ended meanwhile, EpochExpired
        or EpochSettled is raised, and nothing is published. A second call for the same epoch in one run raises
        EpochOld, unless it has the same `id`: then it is the same request again.
        """
        command = wire.Unstash(
            qname=queue, stashes=list(stashes), writer=writer, epoch=epoch,
            reader=reader or None, run=run or None, id=id or secrets.token_hex(8),
        )  # fmt: skip
        return self._caller.call(Request(command, lambda reply: expect(reply, wire.Okrows).rows))

    def writer_epoch(self, queue: str, writer: str) -> int:
        """Return the last epoch that a writer has published; 0 if none."""
        command = wire.Unstash(qname=queue, stashes=[], writer=writer)
        return self._caller.call(Request(command, lambda reply: expect(reply, wire.Okrows).epoch or 0))

    def drop_writer(self, queue: str, *, writer: str, epoch: int = 0) -> None:
        """Drop all that a writer has stashed for this epoch and earlier ones, or (0) as a job, which ends with that."""
        command = wire.Unstash(qname=queue, stashes=[], writer=writer, epoch=epoch, drop=True)
        self._caller.call(Request(command, lambda reply: expect(reply, wire.Okrows)))

    def drop_stashes(self, queue: str, stashes: Sequence[tuple[str, int]]) -> None:
        """Delete stashes that will not be published."""
        command = wire.Unstash(qname=queue, stashes=list(stashes))
        self._caller.call(Request(command, lambda reply: expect(reply, wire.Okrows)))


def _columns(names: Sequence[str] | None) -> Any:
    return None if names is None else list(names)


def _read_block(reply: wire.Reply) -> wire.Block | None:
    return None if isinstance(reply, wire.Nomsg) else expect(reply, wire.Block)
