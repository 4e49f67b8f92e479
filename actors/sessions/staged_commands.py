"""StagedCommands: how a subscriber begins what comes in blocks, and what is staged (docs/internals/staging.md).

    PUBB, STASH, UNSTASH --> entries, with their Asker --> Propose          FETB, PEEKB, SLICE, STAGE ... --> the queue

What a block or a claim means is decided in `block_replies.py` and in the queue.
"""

from collections.abc import Sequence
from typing import Any

from wakeq.actors.mail import Asker, Refusal, Want
from wakeq.actors.queue.staging_mail import Leaf, ReadSlice, Renew, Settle, Stage
from wakeq.actors.sessions.block_replies import STAGED_REPLIES, drafts_in
from wakeq.actors.sessions.door import DOOR_WORKER_WS
from wakeq.actors.sessions.ring_commands import RingCommands
from wakeq.actors.sessions.straight_commands import StraightCommands
from wakeq.protocol.errors import BadField, Refused
from wakeq.protocol.log.entries import Publish, Stash, Unstash, UnstashAction
from wakeq.protocol.wire.worker import codec as wire


class StagedCommands(RingCommands, StraightCommands):
    """A subscriber's commands that come in blocks or stage something: one at a time, each an entry of its own."""

    # --- round the ring --------------------------------------------------------------------------------------------

    def _publish_block(self, run: Sequence[Any]) -> None:
        (command,) = run
        pending = self._begin(run)
        try:
            entry = self._block_entry(command)
        except Refused as error:
            self._reply(pending, 0, wire.nok(error, command.cmd_id))
            return
        self._make_busy(pending, (command.qname,))
        self._propose([(entry, Asker(self, pending, 0))], (command.qname,))

    def _block_entry(self, command: wire.PubBlock) -> Publish | Stash:
        drafts = drafts_in(command, self._services.limits.message_bytes_max)
        name, door, worker = command.qname, self._door.kind, self._worker
        if isinstance(command, wire.Stash):
            return Stash(name, drafts, command.stash, command.part, command.keep * 1000, door, worker)
        numbered = command.n if command.id is None else None
        if numbered is not None and not self._session:
            raise BadField("n needs a session: send HELLO with one first")
        return Publish(
            name,
            drafts,
            atomic=True,
            id=command.id or "",
            session=self._session if numbered is not None else "",
            ordinals=() if numbered is None else (numbered,),
            door=door,
            worker=worker,
        )

    def _unstash(self, run: Sequence[Any]) -> None:
        (command,) = run
        pending = self._begin(run, (command.qname,))
        action = UnstashAction.DROPPED if command.writer is None else UnstashAction.PUBLISHED
        entry = Unstash(command.qname, action, command.stashes, command.writer or "", command.epoch)
        self._propose([(entry, Asker(self, pending, 0))], ())

    # --- straight to the queue -------------------------------------------------------------------------------------

    def _claim(self, run: Sequence[Any]) -> None:
        """STAGE, RENEW or SETTLE: the queue knows what to propose."""
        (command,) = run
        pending = self._begin(run, (command.qname,))
        asker, name, source = Asker(self, pending, 0), command.qname, command.source
        message: Stage | Renew | Settle
        match command:
            case wire.Stage(epoch=epoch, count=count, slices=slices, timeout=timeout):
                about = epoch, count, slices, timeout * 1000
                message = Stage(asker, name, source, *about, self._worker, self._door.kind)
            case wire.Renew(timeout=timeout):
                message = Renew(asker, name, source, timeout * 1000)
            case _:
                message = Settle(asker, name, source, command.epoch)
        self._queue(name).tell(message)

    def _look_in_blocks(self, run: Sequence[Any]) -> None:
        """SLICE or PEEKB: nothing changes."""
        (command,) = run
        pending = self._begin(run)
        asker, name = Asker(self, pending, 0), command.qname
        if isinstance(command, wire.Slice):
            about = command.source, command.epoch, command.slice, command.offset, command.count
            self._queue(name).tell(ReadSlice(asker, name, *about))
        else:
            self._queue(name).tell(Leaf(asker, name, command.after, command.last, command.count))

    def _fetch_block(self, run: Sequence[Any]) -> None:
        (command,) = run
        self._ask_queue(command.qname, self._begin(run), [Want(0, command.count)])

    # --- answers ---------------------------------------------------------------------------------------------------

    def _reply_to(self, command: Any, answer: Any) -> Any:
        """Make the reply; over TCP a block goes out raw."""
        make = STAGED_REPLIES.get(type(command))
        if make is None or type(answer) is Refusal:
            return super()._reply_to(command, answer)
        reply = make(command, answer)
        is_framed = isinstance(reply, wire.Block) and self._door.kind != DOOR_WORKER_WS
        return wire.Framed(reply) if is_framed else reply  # type: ignore[arg-type]
