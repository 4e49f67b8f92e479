"""Messages as blocks and blocks as messages, and the replies of staged commands.

commands with a block --> drafts          deliveries, what was seen --> wire.Block
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from wakeq.protocol.errors import BadField, Busy, TooLarge
from wakeq.protocol.log.entries import Draft, Result
from wakeq.protocol.queue.ledger.staging import (
    JOB_KEPT_MS,
    JOBS_MAX,
    OPEN_EPOCHS_MAX,
    SOURCES_MAX,
    STASHES_MAX,
    WRITERS_MAX,
)
from wakeq.protocol.queue.ledger.uniform import UniformBatch, shape_of, uniform_in_places
from wakeq.protocol.queue.outcomes import Delivery, Outcome, Seen
from wakeq.protocol.seconds import ms_of
from wakeq.protocol.uid import uid_of
from wakeq.protocol.wire.worker import codec as wire
from wakeq.protocol.wire.worker.answers import draft_of, refusal_of
from wakeq.protocol.wire.worker.blocks import Buffers, pack
from wakeq.protocol.wire.worker.commands import HEADERS_BYTES_MAX, HEADERS_MAX, SECONDS_MAX

_HEADERS = msgspec.msgpack.Decoder(dict[str, str])
MAY_PUBLISH = {"body", "headers", "priority", "delay", "delay_ms"}
DELIVERED = ["uid", "body", "headers", "priority", "deliveries", "sequence"]
SEEN = ["uid", "body", "headers", "priority", "deliveries", "published_ms", "state"]


def drafts_in(command: wire.PubBlock, limit: int) -> Sequence[Draft]:
    """Return the messages of a block."""
    if isinstance(command, wire.Stash) and command.messages is not None:
        contents = wire.contents_of(wire.Pub(qname=command.qname, messages=command.messages, **_shared(command)))
        return [draft_of(content, limit) for content in contents]
    assert command.rows is not None, "checked by the codec"
    if unknown := set(command.columns) - MAY_PUBLISH:
        raise BadField(
            f"columns: {min(unknown)!a} cannot be published; the columns are {', '.join(sorted(MAY_PUBLISH))}"
        )
    buffers = Buffers(command.block, command.rows, command.columns)
    shared = command.priority, ms_of(command.delay), ms_of(command.expires), ms_of(command.timeout or 0)
    places, whole = buffers.joined("body")
    bodies = uniform_in_places(whole, places, shape_of(*shared))
    largest = max(bodies.sizes)
    if largest > limit:
        raise TooLarge(f"a message has {largest} bytes, the limit is {limit}; split it or keep it elsewhere")
    return bodies if command.columns == ["body"] else _full_drafts(buffers, bodies, shared)


def _shared(command: wire.PubBlock) -> dict[str, Any]:
    return {name: getattr(command, name) for name in ("timeout", "delay", "expires", "priority")}


def _full_drafts(buffers: Buffers, bodies: UniformBatch, shared: tuple[int, int, int, int]) -> list[Draft]:
    """The same with other columns than bodies; a column wins over what is the same for all."""
    rows = len(bodies)
    texts = bodies.bodies_between(0, rows)
    priority, delay_ms, expires_ms, timeout_ms = shared
    priorities: Sequence[int] = buffers.numbers("priority") if "priority" in buffers else [priority] * rows
    delays_ms: Sequence[int] = [delay_ms] * rows
    if "delay" in buffers:
        if "delay_ms" in buffers:
            raise BadField("columns: give delay or delay_ms, not both")
        delays = buffers.numbers("delay")
        if min(delays) < 0 or max(delays) > SECONDS_MAX:
            raise BadField(f"column delay: seconds from 0 to {SECONDS_MAX}")
        delays_ms = [1000 * delay for delay in delays]
    elif "delay_ms" in buffers:
        delays_ms = buffers.numbers("delay_ms")
        if min(delays_ms) < 0 or max(delays_ms) > SECONDS_MAX * 1000:
            raise BadField(f"column delay_ms: milliseconds from 0 to {SECONDS_MAX * 1000}")
    headers = buffers.texts("headers")
    for packed in headers:
        if packed:
            _check_headers(packed)
    return [
        Draft(body, own_priority, own_delay_ms, expires_ms, timeout_ms, packed)
        for body, own_priority, own_delay_ms, packed in zip(texts, priorities, delays_ms, headers, strict=True)
    ]


def _check_headers(packed: bytes) -> None:
    try:
        count = len(_HEADERS.decode(packed))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise BadField("column headers: each is a MessagePack map of texts, or empty") from None
    if count > HEADERS_MAX or len(packed) > HEADERS_BYTES_MAX:
        raise TooLarge(f"column headers: at most {HEADERS_MAX} texts and {HEADERS_BYTES_MAX} bytes for each message")


# Replies ------------------------------------------------------------------------------------------------------------

_BUSY_WITH = {
    wire.Stage: f"{OPEN_EPOCHS_MAX} epochs of this source are open: settle one first; or {SOURCES_MAX:,} sources have "
    "claimed from this queue within a day: give them fewer names",
    wire.Stash: f"{STASHES_MAX:,} stashes of this queue wait to be published; publish or drop some of them first",
    wire.Unstash: f"{WRITERS_MAX:,} writers have published to this queue within a day, or {JOBS_MAX:,} jobs within "
    f"{JOB_KEPT_MS // 60_000} minutes; give them fewer names",
}


def _refusal_to(command: wire.Stage | wire.Stash | wire.Unstash, code: int) -> wire.Nok:
    """Say which of the bounds of what is staged was reached."""
    if code == Result.BUSY:
        return wire.Nok(err=Busy.code, detail=_BUSY_WITH[type(command)], cmd_id=command.cmd_id)
    return refusal_of(code, command.cmd_id)


def _reply_rows(command: Any, outcome: Outcome) -> wire.Reply:
    """Return the reply to PUBB and STASH."""
    results = outcome.results
    if results[0] < 0 and results[0] != Result.REPEATED:
        is_stash = isinstance(command, wire.Stash)
        return _refusal_to(command, results[0]) if is_stash else refusal_of(results[0], command.cmd_id)
    uid = None if isinstance(command, wire.Stash) else uid_of(outcome.queue_id, results[0])
    return wire.Okrows(qname=command.qname, rows=len(results), uid=uid, cmd_id=command.cmd_id)


def _reply_unstash(command: wire.Unstash, outcome: Outcome) -> wire.Reply:
    # A queue that was read may have crashed over its part, so that all of the entry is skipped.
    refused = next((part.results[0] for part in outcome.follows if part.results[0] < 0), 0)
    code = refused or outcome.results[0]
    if code < 0:
        return _refusal_to(command, Result.NO_QUEUE if code == Result.UNKNOWN else code)
    return wire.Okrows(qname=command.qname, rows=code, epoch=outcome.results[1] or None, cmd_id=command.cmd_id)


def _reply_stage(command: wire.Stage, outcome: Outcome | None) -> wire.Reply:
    if outcome is None or outcome.results[0] == Result.UNKNOWN:
        return wire.Nomsg(qname=command.qname, cmd_id=command.cmd_id)
    if outcome.results[0] < 0:
        return _refusal_to(command, outcome.results[0])
    return wire.Okstage(qname=command.qname, epoch=command.epoch, sizes=list(outcome.results), cmd_id=command.cmd_id)


def _reply_renew(command: wire.Renew, outcome: Outcome) -> wire.Reply:
    code = outcome.results[0]
    if code < 0:
        return refusal_of(Result.EPOCH_EXPIRED, command.cmd_id)
    return wire.Okrenew(qname=command.qname, epochs=code, cmd_id=command.cmd_id)


def _reply_settle(command: wire.SettleEpochs, outcome: Outcome) -> wire.Reply:
    if not command.epoch:
        return wire.Oksettle(qname=command.qname, count=0, next=outcome.results[0], cmd_id=command.cmd_id)
    if Result.EPOCH_EXPIRED in outcome.results:
        return refusal_of(Result.EPOCH_EXPIRED, command.cmd_id)
    done = sum(code == Result.DONE for code in outcome.results)
    return wire.Oksettle(qname=command.qname, count=done, cmd_id=command.cmd_id)


def _reply_release(command: wire.Release, outcome: Outcome) -> wire.Reply:
    if Result.REJECTED in outcome.results:
        return refusal_of(Result.REJECTED, command.cmd_id)
    done = sum(code == Result.DONE for code in outcome.results)
    return wire.Okrelease(qname=command.qname, count=done, cmd_id=command.cmd_id)


def _reply_slice(command: wire.Slice, found: Seen | Outcome) -> wire.Reply:
    if isinstance(found, Outcome):
        return refusal_of(found.results[0], command.cmd_id)
    if command.raw:
        return _seen_block(command, found)
    messages = []
    for uid, draft, earlier in zip(found.uids, found.drafts, found.earlier, strict=True):
        text, enc = wire.text_of(draft.body)
        headers = _HEADERS.decode(draft.headers) if draft.headers else None
        messages.append(wire.Delivery(uid, earlier, text, enc, None, draft.priority, headers))
    return wire.SliceReply(qname=command.qname, messages=messages, next=found.next, cmd_id=command.cmd_id)


def _seen_block(command: wire.Slice | wire.PeekBlock, found: Seen) -> wire.Block:
    values: list[Any] = [[uid.encode() for uid in found.uids], *_columns_of(found.drafts), found.earlier]
    values += [found.published_ms, [state.encode() for state in found.states]]
    # A slice has no states: its messages are staged.
    names = SEEN if found.states else SEEN[:-1]
    kept = [(name, column) for name, column in zip(names, values, strict=False) if _is_wanted(command, name)]
    names, block = [name for name, _ in kept], pack(kept)
    return wire.Block(
        qname=command.qname,
        rows=len(found.uids),
        columns=names,
        block=block,
        next=found.next,
        last=found.last,
        cmd_id=command.cmd_id,
    )


def _is_wanted(command: wire.Slice | wire.PeekBlock, column: str) -> bool:
    return command.columns is None or column in command.columns


def _columns_of(drafts: Sequence[Draft]) -> tuple[list[bytes], list[bytes], list[int]]:
    return [draft.body for draft in drafts], [draft.headers for draft in drafts], [draft.priority for draft in drafts]


def _reply_fetch(command: wire.FetBlock, deliveries: list[Delivery] | None) -> wire.Reply:
    if not deliveries:
        return wire.Nomsg(qname=command.qname, cmd_id=command.cmd_id)
    values: list[list[Any]] = [
        [one.uid.encode() for one in deliveries],
        [one.body for one in deliveries],
        [one.headers for one in deliveries],
        [one.priority for one in deliveries],
        [one.error_count for one in deliveries],
        [one.token[1] for one in deliveries],
    ]
    block = pack(list(zip(DELIVERED, values, strict=True)))
    return wire.Block(
        qname=command.qname,
        rows=len(deliveries),
        columns=DELIVERED,
        block=block,
        term=deliveries[0].token[0],
        cmd_id=command.cmd_id,
    )


STAGED_REPLIES: dict[type, Callable[[Any, Any], wire.Reply]] = {
    wire.PubBlock: _reply_rows,
    wire.Stash: _reply_rows,
    wire.Unstash: _reply_unstash,
    wire.Stage: _reply_stage,
    wire.Renew: _reply_renew,
    wire.SettleEpochs: _reply_settle,
    wire.Release: _reply_release,
    wire.Slice: _reply_slice,
    wire.PeekBlock: _seen_block,
    wire.FetBlock: _reply_fetch,
}
