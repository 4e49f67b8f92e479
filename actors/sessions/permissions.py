"""Which right a command of the worker protocol or of TaskFlux needs, and for which queues.

    a command, Access --> a refusal, or None if it may be done

Deny by default: what is not listed needs every right that an operator has.  Headers that begin with `wakeq-` are the
broker's own: a redrive goes where they say, so only who may empty both queues may write them.  Pure.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from wakeq.actors.sessions.access import Access
from wakeq.protocol.access import Right
from wakeq.protocol.errors import BadField, Refused
from wakeq.protocol.redrive import ORIGIN, OWN_PREFIX
from wakeq.protocol.wire.taskflux import commands as taskflux
from wakeq.protocol.wire.worker import codec as wire
from wakeq.protocol.wire.worker.blocks import Buffers

Refusal = Refused | None
Headers = Mapping[str, str]

OF_A_QUEUE: dict[type, Right] = {
    wire.Pub: Right.PUBLISH,
    wire.Fet: Right.FETCH,
    wire.Ack: Right.FETCH,
    wire.Del: Right.FETCH,
    wire.Nack: Right.FETCH,
    wire.Touch: Right.FETCH,
    wire.Sub: Right.FETCH,
    wire.Uns: Right.FETCH,
    wire.Islp: Right.FETCH,
    wire.Peek: Right.FETCH,
    wire.PubBlock: Right.PUBLISH,
    wire.Stash: Right.PUBLISH,
    wire.Unstash: Right.PUBLISH,
    wire.FetBlock: Right.FETCH,
    wire.PeekBlock: Right.FETCH,
    wire.Stage: Right.FETCH,
    wire.Slice: Right.FETCH,
    wire.Renew: Right.FETCH,
    wire.SettleEpochs: Right.FETCH,
    wire.Release: Right.FETCH,
    wire.Create: Right.ADMIN,
    wire.Update: Right.ADMIN,
    wire.Drop: Right.ADMIN,
    wire.Purge: Right.ADMIN,
}
_OWN_BYTES = OWN_PREFIX.encode()
_HEADERS = msgspec.msgpack.Decoder(dict[str, str])


def refusal_of(command: Any, access: Access) -> Refusal:
    """Return why a command may not be done, or None if it may."""
    check = _OTHERWISE.get(type(command))
    if check is not None:
        return check(command, access)
    right = OF_A_QUEUE.get(type(command))
    if right is None:
        return None if access.may_all(Right.ADMIN) else access.refusal_of_all(Right.ADMIN)
    return _unless_may(access, right, command.qname)


def _unless_may(access: Access, right: Right, queue: str) -> Refusal:
    return None if access.may(right, queue) else access.refusal(right, queue)


def _acknowledgement(command: wire.Ack, access: Access) -> Refusal:
    """What it publishes needs the right to publish there."""
    found = _unless_may(access, Right.FETCH, command.qname)
    for part in command.publish or ():
        found = found or _unless_may(access, Right.PUBLISH, part.qname)
        found = found or _unless_own(access, part.qname, iter([part.headers or {}]))
    return found


def _publish(command: wire.Pub, access: Access) -> Refusal:
    found = _unless_may(access, Right.PUBLISH, command.qname)
    return found or _unless_own(access, command.qname, _headers_of(command))


def _publish_block(command: wire.PubBlock, access: Access) -> Refusal:
    found = _unless_may(access, Right.PUBLISH, command.qname)
    return found or _unless_own(access, command.qname, _headers_in(command))


def _headers_of(command: wire.Pub) -> Iterator[Headers]:
    """Yield the headers of a PUB and of its messages."""
    if command.headers is not None:
        yield command.headers
    if command.messages is not None:
        yield from (item.headers for item in command.messages if not isinstance(item, str) and item.headers is not None)


def _headers_in(command: wire.PubBlock) -> Iterator[Headers]:
    """Yield the headers of the messages in a block, or in the list, of PUBB or STASH."""
    if isinstance(command, wire.Stash) and command.messages is not None:
        yield from (item.headers for item in command.messages if not isinstance(item, str) and item.headers is not None)
    elif "headers" in command.columns and _OWN_BYTES in command.block:  # to look is much cheaper than to read
        try:
            packed = Buffers(command.block, command.rows or 0, command.columns).texts("headers")
            yield from (_HEADERS.decode(one) for one in packed if _OWN_BYTES in one)
        except (BadField, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return  # whoever reads all of it refuses it, and says why


def _unless_own(access: Access, queue: str, all_headers: Iterator[Headers]) -> Refusal:
    """Why headers may not go to the queue; they may if none of them is the broker's, or the token is an operator's."""
    for headers in all_headers:
        for name in headers:
            if name.startswith(OWN_PREFIX):
                needed = {queue, headers.get(ORIGIN, queue)}
                if not access.covers(Right.ADMIN, needed):
                    queues = " and ".join(f"{one[:80]!a}" for one in sorted(needed))
                    return BadField(
                        f"header {name[:40]!a}: headers that begin with {OWN_PREFIX} are the broker's own; leave them "
                        f"out, or for a redrive or an import ask for a token with the right to admin for {queues}"
                    )
    return None


def _policies(command: wire.Create | wire.Update, access: Access) -> Refusal:
    """Where dead letters go is a way into that queue too."""
    found = _unless_may(access, Right.ADMIN, command.qname)
    if isinstance(command.dead_letter, str):
        found = found or _unless_may(access, Right.ADMIN, command.dead_letter)
    return found


def _list(command: wire.List, access: Access) -> Refusal:
    return None if access.may_all(Right.ADMIN, command.prefix) else access.refusal_of_all(Right.ADMIN)


def _stats(command: wire.Stats, access: Access) -> Refusal:
    if command.qname is None:
        return None if access.may_all(Right.ADMIN) else access.refusal_of_all(Right.ADMIN)
    return None if access.may_any(command.qname) else access.refusal(Right.FETCH, command.qname)


def _cluster(command: wire.Cluster, access: Access) -> Refusal:
    """Who leads may be asked by everybody who is known: clients must find the leader."""
    if command.do == "status" and access.is_known:
        return None
    return None if access.may_all(Right.ADMIN) else access.refusal_of_all(Right.ADMIN)


def _ping(_: wire.Ping, access: Access) -> Refusal:
    return None if access.is_known else access.refusal(Right.FETCH, "")


def _records(command: Any, access: Access) -> Refusal:
    """A busy client names the same queue again and again."""
    right = _OF_RECORDS[type(command)]
    return None if access.covers(right, {command.queue}) else access.refusal(right, command.queue)


def _count(command: taskflux.Count, access: Access) -> Refusal:
    return None if access.may_any(command.queue) else access.refusal(Right.FETCH, command.queue)


def _list_queues(_: taskflux.ListQueues, access: Access) -> Refusal:
    return None if access.may_all(Right.ADMIN) else access.refusal_of_all(Right.ADMIN)


def _nothing(_: Any, access: Access) -> Refusal:
    """Who holds a record was allowed to take it, and who leads may be asked by everybody."""
    return None


_OF_RECORDS: dict[type, Right] = {
    taskflux.Store: Right.PUBLISH,
    taskflux.Dequeue: Right.FETCH,
    taskflux.Take: Right.FETCH,
    taskflux.CreateQueue: Right.ADMIN,
    taskflux.DeleteQueue: Right.ADMIN,
}

_OTHERWISE: dict[type, Callable[[Any, Access], Refusal]] = {
    wire.Pub: _publish,
    wire.PubBlock: _publish_block,
    wire.Stash: _publish_block,
    wire.Ack: _acknowledgement,
    wire.Del: _acknowledgement,
    wire.Create: _policies,
    wire.Update: _policies,
    wire.List: _list,
    wire.Stats: _stats,
    wire.Cluster: _cluster,
    wire.Ping: _ping,
    taskflux.Store: _records,
    taskflux.Dequeue: _records,
    taskflux.Take: _records,
    taskflux.CreateQueue: _records,
    taskflux.DeleteQueue: _records,
    taskflux.Count: _count,
    taskflux.ListQueues: _list_queues,
    taskflux.Remove: _nothing,
    taskflux.Return: _nothing,
    taskflux.ClusterMetadataRequest: _nothing,
}
