"""Answers: commands of the worker protocol become drafts and entries, outcomes become replies.

In: commands of the codec, outcomes of queues and of the log.  Out: what goes to the log, or to the wire.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from wakeq.protocol.catalog import Policies, changed, check
from wakeq.protocol.errors import BadField, TooLarge
from wakeq.protocol.log import entries as log
from wakeq.protocol.log.entries import ANY_TOKEN, Draft, Reason, Result, Token
from wakeq.protocol.queue.ledger.publishers import published_uids
from wakeq.protocol.queue.ledger.uniform import shape_of, uniform_texts
from wakeq.protocol.queue.outcomes import Delivery, Outcome, Refusal
from wakeq.protocol.seconds import ms_of
from wakeq.protocol.uid import uid_of
from wakeq.protocol.wire.worker import codec as wire

BATCH_BYTES_MAX = 32 << 20  # of one batch with its headers, which a line may name once for all of it
DIGITS_MAX = 18  # of either part of a lease: what fits the log's 64 bits

REFUSALS = {
    Result.STALE: (
        "STALE_LEASE",
        "the lease is over, and another worker may have the message; drop this result, and next time use "
        "a longer timeout, or touch the message in time",
    ),
    Result.QUEUE_FULL: ("QUEUE_FULL", "the queue has reached its limit; try again when it has fewer messages"),
    Result.KEY_RANGE: ("KEY_RANGE", "the priority is outside of the range that the queue allows"),
    Result.TOO_LARGE: ("TOO_LARGE", "the message is larger than the queue allows"),
    Result.BUSY: ("BUSY", "too many publishes with an id in this queue within 15 minutes; try again later"),
    Result.FORGOTTEN: ("BAD_FIELD", "n is more than 1024 behind the highest of this session; its outcome is forgotten"),
    Result.NO_QUEUE: ("Q_NOT_FOUND", "this queue does not exist; publish to it or create it first"),
    Result.EXISTS: ("Q_EXISTS", "this queue exists already; update it to change its policies"),
    Result.DEFAULT_QUEUE: ("BAD_NAME", "the default queue cannot be deleted; purge it instead"),
    Result.SET_ASIDE: ("SET_ASIDE", "this command crashed its queue, which skips it; see wakeq inspect"),
    Result.UNKNOWN: ("UNKNOWN_UID", "there is no such message in this queue"),
    Result.REJECTED: ("BUSY", "not now; try again"),
    Result.EPOCH_EXPIRED: (
        "EPOCH_EXPIRED",
        "the claim of this epoch is over, and it was not settled: its messages are ready again",
    ),
    Result.EPOCH_SETTLED: (
        "EPOCH_SETTLED",
        "this epoch was settled, or its reader has gone on without it; stage a later one",
    ),
    Result.STASH_EXPIRED: (
        "STASH_EXPIRED",
        "a stash that is to be published is gone, or has another size; `keep` of STASH says how long it waits",
    ),
    Result.EPOCH_OLD: (
        "EPOCH_OLD",
        "this writer has published this epoch or a later one already; give a higher epoch, or another writer",
    ),
}


def draft_of(content: wire.Content, limit: int) -> Draft:
    _check_size(len(content.body), limit)
    headers = msgspec.msgpack.encode(content.headers) if content.headers else b""
    return Draft(
        content.body,
        content.priority,
        ms_of(content.delay),
        ms_of(content.expires),
        ms_of(content.timeout or 0),
        headers,
    )


def drafts_of(pub: wire.Pub, limit: int) -> Sequence[Draft]:
    """Return the messages of a PUB that is a whole of its own."""
    if not wire.are_texts(pub) or pub.headers is not None:
        drafts = [draft_of(content, limit) for content in wire.contents_of(pub)]
        size = sum(len(draft.body) + len(draft.headers) for draft in drafts)
        if size > BATCH_BYTES_MAX and len(drafts) > 1:
            raise TooLarge(
                f"the batch has {size} bytes with its headers, at most {BATCH_BYTES_MAX} are accepted; split it"
            )
        return drafts
    shape = shape_of(pub.priority, ms_of(pub.delay), ms_of(pub.expires), ms_of(pub.timeout or 0))
    alike = uniform_texts(cast("list[str]", pub.messages), shape)
    _check_size(max(alike.sizes), limit)
    return alike


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise TooLarge(f"the message has {size} bytes, the limit is {limit}; split it or keep it elsewhere")


def token_of(lease: str) -> Token:
    """Read a lease token as we write it."""
    term, _, sequence = lease.partition("-")
    if not (term.isdecimal() and sequence.isdecimal()) or len(term) > DIGITS_MAX or len(sequence) > DIGITS_MAX:
        raise BadField("lease was not issued by this broker")
    return int(term), int(sequence)


def settled_by(command: wire.Settle) -> tuple[list[str], list[Token]]:
    """Return the uids of a command and the token of each."""
    uids = [command.uid] if command.uid is not None else list(command.uids or ())
    leases = command.leases or [command.lease] * len(uids)
    return uids, [ANY_TOKEN if lease is None else token_of(lease) for lease in leases]


def reason_of(command: wire.Nack) -> Reason:
    """Return why the deliveries that a NACK is about end."""
    if command.dead:
        return Reason.EXHAUSTED if command.exhausted else Reason.REJECTED
    return Reason.NACK if command.failed else Reason.RETURNED


def refused(refusal: Refusal, cmd_id: Any) -> wire.Nok:
    """Say why, and where to go instead."""
    nok = wire.Nok(err=refusal.code, detail=refusal.detail, cmd_id=cmd_id)
    if not refusal.leader:
        return nok
    return msgspec.structs.replace(nok, leader=refusal.leader, leader_http=refusal.leader_http or None)


def refusal_of(code: int, cmd_id: Any) -> wire.Nok:
    err, detail = REFUSALS[Result(code)]
    return wire.Nok(err=err, detail=detail, cmd_id=cmd_id)


def acked(command: wire.Ack, code: int) -> wire.Reply:
    """Return the reply to a plain acknowledgement of one message."""
    if code == Result.DONE:
        return wire.Okack(uid=command.uid, qname=command.qname, cmd_id=command.cmd_id)
    if code == Result.UNKNOWN:
        return wire.Okack(uid=command.uid, qname=command.qname, known=False, cmd_id=command.cmd_id)
    return refusal_of(code, command.cmd_id)


def settled_reply(command: wire.Settle, uids: Sequence[str], results: Sequence[int]) -> wire.Reply:
    """Return the reply to an ACK, NACK or TOUCH of some uids."""
    make: Any = {wire.Nack: wire.Oknack, wire.Touch: wire.Oktouch}.get(type(command), wire.Okack)
    if command.uid is not None:
        if results[0] not in (Result.DONE, Result.UNKNOWN):
            return refusal_of(results[0], command.cmd_id)
        known = results[0] == Result.DONE
        one: wire.Reply = make(uid=command.uid, qname=command.qname, known=known, cmd_id=command.cmd_id)
        return one
    by_code = {code: [uid for uid, its in zip(uids, results, strict=True) if its == code] for code in set(results)}
    unknown, stale = by_code.pop(Result.UNKNOWN, None), by_code.pop(Result.STALE, None)
    if stale:
        done = by_code.get(Result.DONE)
        detail = f"{len(stale)} of {len(uids)} leases are over, and other workers may have the messages"
        return wire.Nok(
            err="STALE_LEASE", detail=detail, uids=done, unknown=unknown, stale=stale, cmd_id=command.cmd_id
        )
    several: wire.Reply = make(uids=list(uids), qname=command.qname, unknown=unknown, cmd_id=command.cmd_id)
    return several


def _reply_publish(command: wire.Pub, outcome: Outcome | str | int) -> wire.Reply:
    """Return the reply to a publish: one of many in an entry (its uid or a code), or an entry of its own."""
    if type(outcome) is str:
        return wire.Ok(qname=command.qname, uid=outcome, cmd_id=command.cmd_id)
    if type(outcome) is int:
        return refusal_of(outcome, command.cmd_id)
    assert type(outcome) is Outcome, "one of the three"
    results = outcome.results
    number = results[0]
    if number < 0:
        return refusal_of(number, command.cmd_id)
    if command.messages is not None:
        return wire.Ok(
            qname=command.qname, uids=published_uids(outcome.queue_id, outcome.results), cmd_id=command.cmd_id
        )
    uid = (
        uid_of(outcome.queue_id, number)
        if type(results) is range
        else published_uids(outcome.queue_id, outcome.results)[0]
    )
    return wire.Ok(qname=command.qname, uid=uid, cmd_id=command.cmd_id)


def _reply_ack(command: wire.Ack, outcome: Outcome | int) -> wire.Reply:
    """Return the reply to an ACK: of one message (a code), of several, or with follow-ups."""
    if type(outcome) is int:
        return acked(command, outcome)
    assert type(outcome) is Outcome, "one or the other"
    uids = command.uids or [command.uid or ""]
    if command.publish is None:
        return settled_reply(command, uids, outcome.results)
    if not outcome.follows:  # refused as a whole
        return refusal_of(outcome.results[0], command.cmd_id)
    worst = next((follow.results[0] for follow in outcome.follows if follow.results[0] < 0), 0)
    if worst:
        return refusal_of(worst, command.cmd_id)
    follow_uids = [published_uids(follow.queue_id, follow.results)[0] for follow in outcome.follows]
    reply = settled_reply(command, uids, outcome.results)
    return msgspec.structs.replace(reply, published=follow_uids)


def _reply_fetch(command: wire.Fet, deliveries: list[Delivery] | None) -> wire.Reply:
    if not deliveries:
        return wire.Nomsg(qname=command.qname, cmd_id=command.cmd_id)
    if command.count is not None:
        return wire.Msgs(
            qname=command.qname, messages=[_delivery(delivery) for delivery in deliveries], cmd_id=command.cmd_id
        )
    (delivery,) = deliveries
    text, enc = wire.text_of(delivery.body)
    return wire.Msg(
        qname=command.qname,
        uid=delivery.uid,
        error_count=delivery.error_count,
        msg=text,
        enc=enc,
        lease=f"{delivery.token[0]}-{delivery.token[1]}",
        priority=delivery.priority,
        headers=_headers(delivery.headers) if delivery.headers else None,
        # Where `error_count` says as much, a client that does not know failures notices nothing.
        failures=None if delivery.failures == delivery.error_count else delivery.failures,
        cmd_id=command.cmd_id,
    )


def _delivery(delivery: Delivery) -> wire.Delivery:
    text, enc = wire.text_of(delivery.body)
    return wire.Delivery(
        delivery.uid,
        delivery.error_count,
        text,
        enc,
        f"{delivery.token[0]}-{delivery.token[1]}",
        delivery.priority,
        _headers(delivery.headers) if delivery.headers else None,
        None if delivery.failures == delivery.error_count else delivery.failures,
    )


def _headers(packed: bytes) -> dict[str, str]:
    return msgspec.msgpack.decode(packed, type=dict[str, str])


def queue_entry_of(command: Any) -> log.Entry:
    match command:
        case wire.Create():
            policies = changed(Policies(), _builtin(wire.policies_of(command)))
            check(command.qname, policies)
            return log.CreateQueue(command.qname, policies)
        case wire.Update():
            return log.UpdateQueue(command.qname, _builtin(wire.policies_of(command)))
        case wire.Drop():
            return log.DeleteQueue(command.qname)
        case _:
            return log.PurgeQueue(command.qname)


def _builtin(policies: dict[str, Any]) -> dict[str, Any]:
    return {name: msgspec.to_builtins(value) for name, value in policies.items()}


def _reply_queue(command: Any, outcome: Outcome) -> wire.Reply:
    code = outcome.results[0]
    if code < 0:
        return refusal_of(code, command.cmd_id)
    if type(command) is wire.Purge:
        return wire.Purged(qname=command.qname, count=code, cmd_id=command.cmd_id)
    makers: dict[Any, Any] = {wire.Create: wire.Okcreate, wire.Update: wire.Okupdate, wire.Drop: wire.Okdrop}
    make = makers[type(command)]
    reply: wire.Reply = make(qname=command.qname, cmd_id=command.cmd_id)
    return reply


def _reply_peek(command: wire.Peek, rows: list[dict[str, Any]]) -> wire.Reply:
    messages = []
    for row in rows:
        text, enc = wire.text_of(row.pop("body"))
        packed = row.pop("headers")
        headers = _headers(packed) if packed else None
        messages.append({"uid": row.pop("uid"), "msg": text, "enc": enc, "headers": headers, **row})
    return wire.Peeked(qname=command.qname, messages=messages, cmd_id=command.cmd_id)


REPLIES: dict[type, Callable[[Any, Any], wire.Reply]] = {
    wire.Pub: _reply_publish,
    wire.Ack: _reply_ack,
    wire.Del: _reply_ack,
    wire.Fet: _reply_fetch,
    wire.Nack: lambda command, outcome: settled_reply(command, settled_by(command)[0], outcome.results),
    wire.Touch: lambda command, outcome: settled_reply(command, settled_by(command)[0], outcome.results),
    wire.Islp: lambda command, _: wire.Okslp(qname=command.qname, cmd_id=command.cmd_id),
    wire.Create: _reply_queue,
    wire.Update: _reply_queue,
    wire.Drop: _reply_queue,
    wire.Purge: _reply_queue,
    wire.Peek: _reply_peek,
    wire.Cluster: lambda command, facts: wire.ClusterReply(cluster=facts, cmd_id=command.cmd_id),
    wire.List: lambda command, rows: wire.Queues(queues=rows, cmd_id=command.cmd_id),
    wire.Stats: lambda command, found: wire.StatsReply(
        stats=found if isinstance(found, dict) else {"queues": found}, qname=command.qname, cmd_id=command.cmd_id
    ),
}
