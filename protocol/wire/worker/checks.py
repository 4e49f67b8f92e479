"""What the types of the worker protocol cannot state: one check for each command, and bodies as bytes.

A decoded command goes in and comes out (nearly always the same object), or Refused is raised.  Must never
quote a peer's text unescaped or at length, or be needed for a plain PUB, FET or ACK: that is the hot path.
"""

from base64 import b64decode
from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct, structs

from wakeq.protocol.errors import BadField, TooLarge
from wakeq.protocol.names import check_name
from wakeq.protocol.wire.worker.commands import (
    ERROR_CHARS_MAX,
    HEADERS_BYTES_MAX,
    Ack,
    CommandBase,
    Create,
    Del,
    Drop,
    Fet,
    FetBlock,
    Followup,
    Islp,
    Item,
    Nack,
    Peek,
    PeekBlock,
    Policies,
    Pub,
    PubBlock,
    Purge,
    Release,
    Renew,
    Retry,
    Settle,
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

Part: TypeAlias = Pub | Item | Followup


class Content(Struct, frozen=True, gc=False):
    """One message as everything behind the codec sees it: the body as bytes, and its parameters."""

    body: bytes
    timeout: float | None = None
    delay: float = 0
    expires: float = 0
    priority: int = 0
    headers: dict[str, str] | None = None


# --- Bodies ---


def body_of(part: Part) -> bytes:
    """Return the body of one published message (`message` before `msg`)."""
    text = part.message if part.message is not None else part.msg
    if text is None:
        raise BadField("message is missing")
    return text.encode() if part.enc is None else _from_base64(text)


def contents_of(pub: Pub) -> list[Content]:
    """Return the messages of a PUB, single or batch; what an item leaves out comes from the PUB."""
    if pub.messages is None:
        return [Content(body_of(pub), pub.timeout, pub.delay, pub.expires, pub.priority, pub.headers)]
    return [_content(item, pub) for item in pub.messages]


def are_texts(pub: Pub) -> bool:
    """Return whether a batch is nothing but texts that go out as they came."""
    return pub.enc is None and pub.messages is not None and set(map(type, pub.messages)) == {str}


def followup_content(part: Followup) -> Content:
    """Return the message of one item of an ACK's `publish`."""
    return Content(body_of(part), part.timeout, part.delay or 0, part.expires or 0, part.priority or 0, part.headers)


def _content(item: str | Item, pub: Pub) -> Content:
    if isinstance(item, str):
        body = item.encode() if pub.enc is None else _from_base64(item)
        return Content(body, pub.timeout, pub.delay, pub.expires, pub.priority, pub.headers)
    if item.enc is None and pub.enc is not None:
        item = structs.replace(item, enc=pub.enc)
    return Content(
        body_of(item),
        pub.timeout if item.timeout is None else item.timeout,
        pub.delay if item.delay is None else item.delay,
        pub.expires if item.expires is None else item.expires,
        pub.priority if item.priority is None else item.priority,
        pub.headers if item.headers is None else item.headers,
    )


def _from_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise BadField("message is not base64 (RFC 4648, with padding), though enc says b64") from None


# --- Checks ---


def check_pub(pub: Pub) -> Pub:
    """Check a PUB that has more than a plain message."""
    check_name(pub.qname)
    _check_headers(pub.headers, "headers")
    if pub.messages is None:
        if pub.message is None and pub.msg is None:
            raise BadField("message is missing: give message (or msg), or messages for a batch")
        if pub.enc is not None:
            body_of(pub)
        return pub
    if pub.message is not None or pub.msg is not None:
        raise BadField("give message or messages, not both")
    if not are_texts(pub):
        for place, item in enumerate(pub.messages):
            _check_item(item, pub, f"messages[{place}]")
    return pub


def _check_item(item: str | Item, pub: Pub, where: str) -> None:
    if isinstance(item, str):
        if pub.enc is not None:
            _within(where, lambda: _from_base64(item))
        return
    _check_headers(item.headers, f"{where}.headers")
    if item.message is None and item.msg is None:
        raise BadField(f"{where}.message is missing")
    if item.enc is not None or pub.enc is not None:
        _within(where, lambda: _content(item, pub))


def _within(where: str, step: Callable[[], object]) -> None:
    """Do a step; its error says which item it was about."""
    try:
        step()
    except BadField as error:
        raise BadField(f"{where}.{error}") from None


def _check_headers(headers: dict[str, str] | None, where: str) -> None:
    if headers is None:
        return
    size = sum(len(key.encode()) + len(value.encode()) for key, value in headers.items())
    if size > HEADERS_BYTES_MAX:
        raise TooLarge(f"{where} have {size} bytes in all, at most {HEADERS_BYTES_MAX} are allowed")


def check_settle(command: Settle) -> Settle:
    """Check which messages an ACK, NACK or TOUCH is about."""
    check_name(command.qname)
    if (command.uid is None) == (command.uids is None):
        raise BadField("uid is missing" if command.uid is None else "give uid or uids, not both")
    if command.leases is None:
        return command
    if command.uids is None or len(command.leases) != len(command.uids):
        raise BadField("leases must be as many as uids, in their order")
    if command.lease is not None:
        raise BadField("give lease or leases, not both")
    return command


def check_ack(command: Ack) -> Ack:
    """Check an ACK, and what it publishes."""
    check_settle(command)
    for place, part in enumerate(command.publish or ()):
        where = f"publish[{place}]"
        check_name(part.qname)
        _check_headers(part.headers, f"{where}.headers")
        if part.message is None and part.msg is None:
            raise BadField(f"{where}.message is missing")
        if part.enc is not None:
            _within(where, lambda part=part: body_of(part))  # type: ignore[misc]
    return command


def check_nack(command: Nack) -> Nack:
    """Check a NACK; an error text that is too long is cut, not refused."""
    check_settle(command)
    if command.dead and command.delay is not None:
        raise BadField("give delay or dead, not both: a dead letter is not redelivered")
    if command.exhausted and not command.dead:
        raise BadField("exhausted is the reason of a dead letter: give dead too")
    if command.dead and not command.failed:
        raise BadField("give dead or failed false, not both: a dead letter has failed")
    if command.error is not None and len(command.error) > ERROR_CHARS_MAX:
        return structs.replace(command, error=command.error[:ERROR_CHARS_MAX])
    return command


def check_policies(command: Policies) -> Policies:
    """Check what CREATE and UPDATE name: ranges the wrong way round, the dead-letter queue's name."""
    check_name(command.qname)
    if isinstance(command.dead_letter, str):
        check_name(command.dead_letter)
    low, high = command.priority_min, command.priority_max
    if isinstance(low, int) and isinstance(high, int) and low > high:
        raise BadField(f"priority_min ({low}) is greater than priority_max ({high})")
    if isinstance(command.retry, Retry) and command.retry.max < command.retry.base:
        raise BadField(f"retry.max ({command.retry.max:g} s) is less than retry.base ({command.retry.base:g} s)")
    return command


def check_block(command: PubBlock) -> PubBlock:
    """Check what comes as a block, or instead of one; the block itself is checked when it is read."""
    check_name(command.qname)
    messages = command.messages if isinstance(command, Stash) else None
    if messages is not None and command.rows is not None:
        raise BadField("give messages, or rows with a block, not both")
    if messages is None and (command.rows is None or not command.columns):
        raise BadField("rows and columns must be given with a block")
    if isinstance(command, Stash) and (command.n is not None or command.id is not None):
        raise BadField("a stash has no id and no n: its part identifies it")
    if isinstance(command, Stash) and command.epoch and command.writer is None:
        raise BadField("epoch needs a writer")
    return command


def check_slice(command: Slice) -> Slice:
    """Check a look at a slice, and who says that he reads it."""
    check_name(command.qname)
    if (command.reader is None) != (command.batch is None):
        raise BadField("give reader and batch, or neither")
    if command.run is not None and command.reader is None:
        raise BadField("run needs reader and batch")
    return command


def check_unstash(command: Unstash) -> Unstash:
    """Check what a writer publishes or drops."""
    check_name(command.qname)
    if command.drop and (command.writer is None or command.reader is not None):
        raise BadField("drop needs a writer, and has no reader: nothing is published")
    if command.reader is not None and (command.writer is None or not command.epoch):
        raise BadField("reader needs a writer and an epoch: the number of the batch that it has read")
    return command


def check_named(command: Any) -> Any:
    """Check a command that has nothing but a queue's name to check."""
    if command.qname is not None:
        check_name(command.qname)
    return command


CHECKS: dict[type[CommandBase], Callable[[Any], Any]] = {
    Pub: check_pub, Ack: check_ack, Del: check_ack, Nack: check_nack, Touch: check_settle,
    Create: check_policies, Update: check_policies,
    Fet: check_named, Sub: check_named, Uns: check_named, Islp: check_named, Drop: check_named,
    Stats: check_named, Peek: check_named, Purge: check_named,
    PubBlock: check_block, Stash: check_block, FetBlock: check_named, PeekBlock: check_named, Stage: check_named,
    Slice: check_slice, Renew: check_named, SettleEpochs: check_named, Release: check_named, Unstash: check_unstash,
}  # fmt: skip
