"""Subscriber: one connection of the worker protocol.

    Received (listener) --> runs of like commands --> the log or the queue --> answers, in the order of the requests

It checks what belongs to the connection (rights, sizes, HELLO) and knows no rule of a queue.

Built in layers: Requests keeps the order; RingCommands, StraightCommands and StagedCommands have the commands; and
here is what begins and ends a connection, and the table of which method begins which command.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import msgspec

from wakeq.actors.mail import Answered, Asker, Gone, Refusal, Woken
from wakeq.actors.sessions.connection_facts import describe
from wakeq.actors.sessions.door import Closed, Ended, Received
from wakeq.actors.sessions.in_flight import KEPT_BYTES_MIN
from wakeq.actors.sessions.operator_mail import Describe
from wakeq.actors.sessions.permissions import refusals
from wakeq.actors.sessions.staged_commands import StagedCommands
from wakeq.actors.sessions.worker_replies import refused
from wakeq.protocol.errors import BadCommand, BadJson, NotSpoken, Refused, Unauthorized
from wakeq.protocol.wire.worker import codec as wire

BAD_LINES_MAX = 1_000  # lines that are no command, of a client that is known; then its connection ends
GOOD_FOR_BAD = 10  # commands for which one such line is forgiven


class Subscriber(StagedCommands):
    """See the head of this file."""

    _is_known = False  # whether the peer has sent a command of the protocol, obeyed or refused
    _debt = 0  # GOOD_FOR_BAD for each bad line, less 1 for each command behind it

    def on_receive(self, message: Any) -> None:
        kind = type(message)
        if kind is Received:
            self._in_flight_bytes += message.size_bytes
            if self._in_flight_bytes > KEPT_BYTES_MIN:
                self._count_bytes(len(message.commands), message.size_bytes)
            self._receive(message.commands)
        elif kind is Answered:
            self._answered(message.answers)
        elif kind is Woken:
            self._wake(message.queue)
        elif kind is Ended:
            self._ended = True
            self._end_waits(())
            self._finish_if_answered()
        elif kind is Closed:
            self.stop()
        elif kind is Describe:
            self._describe(message.asker)

    def _wake(self, name: str) -> None:
        """Send awk at once, or after the okslp to which it belongs if that has not been sent yet."""
        awk = wire.Awk(qname=name)
        for pending in reversed(self._pendings or ()):
            if type(pending.commands[0]) is wire.Islp and pending.commands[0].qname == name:
                pending.replies.append(awk)
                return
        self._door.send([awk])

    def _describe(self, asker: Asker) -> None:
        """Describe this connection to an operator."""
        facts = describe(self, self._worker, self._door, in_flight=self._in_flight)
        asker.tell(facts)

    def on_stop(self) -> None:
        self._say_gone()

    def on_failure(self, *_: Any) -> None:
        self._door.close("internal error")
        self._say_gone()

    def _say_gone(self) -> None:
        gone = Gone(self)
        for name in self._known or ():
            self._queue(name).tell(msgspec.structs.replace(gone, queue=name))

    def _begin_run(self, run: Sequence[Any]) -> None:
        if self._closing:
            return  # the connection is about to be closed: later commands are ignored
        if self._waits:
            self._end_waits(run)
        if self._access is not None and (found := refusals(run, self._access)) is not None:
            self._begin_permitted(run, found)
            return
        self._begin_alike(run)

    def _begin_permitted(self, run: Sequence[Any], found: Sequence[Refused | None]) -> None:
        """Begin the commands that are allowed, each in its place, and refuse the others."""
        gate, access = self._services.gate, self._access
        if gate is not None and access is not None and not access.is_known:
            gate.miss_token(self._door.peer)
        for is_refused, places in groupby(range(len(run)), lambda place: found[place] is not None):
            if is_refused:
                self._bad([wire.Bad(found[place], run[place].cmd_id) for place in places])  # type: ignore[arg-type]
            else:
                self._begin_alike([run[place] for place in places])

    def _begin_alike(self, run: Sequence[Any]) -> None:
        kind = type(run[0])
        if kind is wire.Bad:
            self._bad(run)
            return
        self._is_known = True
        if self._debt:
            self._debt = max(0, self._debt - len(run))
        if kind not in _ANYWHERE:
            refusal = self._services.refusal()
            if refusal is not None:
                self._refuse(run, refusal)
                return
        _BEGIN[kind](self, run)

    def _refuse(self, run: Sequence[Any], refusal: Refusal) -> None:
        """Refuse a run because this node does not serve; the refusal says who does."""
        pending = self._begin(run)
        for place, command in enumerate(run):
            self._reply(pending, place, refused(refusal, command.cmd_id))

    def _ping(self, run: Sequence[Any]) -> None:
        (command,) = run
        self._reply(self._begin(run), 0, wire.Pong(cmd_id=command.cmd_id))

    def _hello(self, run: Sequence[Any]) -> None:
        (command,) = run
        try:
            self._log_in(command.token)
        except Unauthorized as error:
            self._bad([wire.Bad(error, command.cmd_id)])
            return
        if command.session is not None:
            self._session = command.session
        limits = self._services.limits
        reply = wire.HelloReply(
            version=limits.version,
            limits={"message_bytes_max": limits.message_bytes_max},
            session=self._session or None,
            cmd_id=command.cmd_id,
        )
        self._reply(self._begin(run), 0, reply)

    def _log_in(self, token: str | None) -> None:
        """Check the token, if this node requires one; a client that has given one need not repeat it."""
        gate, access = self._services.gate, self._access
        if gate is None or access is None or (token is None and access.is_known):
            return
        self._access = gate.login(token, self._door)
        self._door.welcome()

    def _bad(self, run: Sequence[Any]) -> None:
        """Refuse commands, as far as none of the refusals ends the connection."""
        refusals: list[wire.Reply] = []
        for bad in run:
            error = self._judge(bad.error)
            refusals.append(wire.nok(error, bad.cmd_id))
            if error.closes:
                self._closing = error.code  # once all earlier commands are answered
                break
        pending = self._begin(run[: len(refusals)])
        for place, refusal in enumerate(refusals):
            self._reply(pending, place, refusal)

    def _judge(self, error: Refused) -> Refused:
        """Return what is wrong, and whether it ends the connection: a stranger's mistake, or one too many."""
        if not isinstance(error, BadJson | BadCommand):
            self._is_known = True
        elif not self._is_known and isinstance(error, BadJson):
            return NotSpoken(f"{error}; a connection begins with a command, so this one ends")
        else:
            self._debt += GOOD_FOR_BAD
            if self._debt > GOOD_FOR_BAD * BAD_LINES_MAX:
                return NotSpoken(f"{error}; after {BAD_LINES_MAX} lines that are no command the connection ends")
        return error


_ANYWHERE = frozenset({wire.Ping, wire.Hello, wire.Uns, wire.Cluster})  # answered even by a follower

_BEGIN: dict[type, Callable[[Subscriber, Sequence[Any]], None]] = {
    wire.Pub: Subscriber._publish,
    wire.Ack: Subscriber._ack,
    wire.Del: Subscriber._ack,
    wire.Fet: Subscriber._fetch,
    wire.Nack: Subscriber._nack,
    wire.Touch: Subscriber._touch,
    wire.Sub: Subscriber._subscribe,
    wire.Uns: Subscriber._unsubscribe,
    wire.Islp: Subscriber._sleep,
    wire.Ping: Subscriber._ping,
    wire.Hello: Subscriber._hello,
    wire.Create: Subscriber._change_queue,
    wire.Update: Subscriber._change_queue,
    wire.Drop: Subscriber._change_queue,
    wire.Purge: Subscriber._change_queue,
    wire.List: Subscriber._look,
    wire.Stats: Subscriber._look,
    wire.Peek: Subscriber._look,
    wire.PubBlock: Subscriber._publish_block,
    wire.Stash: Subscriber._publish_block,
    wire.Unstash: Subscriber._unstash,
    wire.Stage: Subscriber._claim,
    wire.Renew: Subscriber._claim,
    wire.SettleEpochs: Subscriber._claim,
    wire.Slice: Subscriber._look_in_blocks,
    wire.PeekBlock: Subscriber._look_in_blocks,
    wire.FetBlock: Subscriber._fetch_block,
    wire.Cluster: Subscriber._look,
}
