"""Which right a command of the worker protocol needs, and for which queues.

    a run of like commands, Access --> refusals, or None if all of them may be done

Deny by default: what is not listed needs every right that an operator has.  Pure.
"""

from collections.abc import Callable, Sequence
from typing import Any

from wakeq.actors.access import Access
from wakeq.protocol.access import Right
from wakeq.protocol.errors import Forbidden, Unauthorized
from wakeq.protocol.wire import worker as wire

Refusal = Forbidden | Unauthorized | None

FREE = frozenset({wire.Hello, wire.Bad})  # what a stranger may say
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
    wire.Create: Right.ADMIN,
    wire.Update: Right.ADMIN,
    wire.Drop: Right.ADMIN,
    wire.Purge: Right.ADMIN,
}
_SETTLING = frozenset({wire.Ack, wire.Del})
_POLICIES = frozenset({wire.Create, wire.Update})


def refusals(run: Sequence[Any], access: Access) -> Sequence[Refusal] | None:
    """Return why each of the commands may not be done, or None if all may."""
    kind = type(run[0])
    if kind in FREE:
        return None
    right = OF_A_QUEUE.get(kind)
    is_plain = kind not in _POLICIES and (kind not in _SETTLING or all([command.publish is None for command in run]))
    if right is not None and is_plain and access.covers(right, {command.qname for command in run}):
        return None
    found = [_refusal(command, access) for command in run]
    return found if any(found) else None


def _refusal(command: Any, access: Access) -> Refusal:
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
    return found


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


_OTHERWISE: dict[type, Callable[[Any, Access], Refusal]] = {
    wire.Ack: _acknowledgement,
    wire.Del: _acknowledgement,
    wire.Create: _policies,
    wire.Update: _policies,
    wire.List: _list,
    wire.Stats: _stats,
    wire.Cluster: _cluster,
    wire.Ping: _ping,
}
