"""Requests: what every call of a client says, and how the broker's reply to it is read.

    arguments  -->  Request(command, read)          reply  -->  read  -->  what the call returns

Both clients stand on this, so that a call means the same in each.  Pure: it builds, reads, and raises BadField for
what cannot be said, and the typed error of a refusal; it never waits and knows no connection.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from wakeq.client.core.encoding import plain_text, text_of_reason
from wakeq.client.core.session import NotTheProtocol, error_of
from wakeq.client.message import Body, Reason, Received, Then, bytes_of_body
from wakeq.protocol.errors import BadField, MessageNotFound, StaleLease
from wakeq.protocol.wire.worker import codec as wire

T = TypeVar("T")
AnyReply = TypeVar("AnyReply", bound=wire.Reply)
AnyMessage = TypeVar("AnyMessage", bound=Received)

SHOWN_CHARS_MAX = 60  # of a value that is quoted in an error

MessageMaker: TypeAlias = Callable[[str, "wire.Msg | wire.Delivery"], AnyMessage]


class Request(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A command, and the way to read its reply."""

    command: wire.Command
    read: Callable[[wire.Reply], T]


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of many messages, by uid.  True if all were as their holder believed."""

    done: Sequence[str] = ()
    unknown: Sequence[str] = ()  # gone already
    stale: Sequence[str] = ()  # their leases were over: they came back, perhaps to others

    def __bool__(self) -> bool:
        return not self.unknown and not self.stale


# Messages -------------------------------------------------------------------------------------------------


class Options(msgspec.Struct, frozen=True, gc=False):
    """How to publish; spans in whole seconds."""

    delay: int
    timeout: int | None
    expires: int
    priority: int
    headers: Mapping[str, str] | None
    id: str | None

    def fields(self) -> dict[str, Any]:
        """As the fields of a command."""
        return {
            "delay": _seconds("delay", self.delay),
            "timeout": _seconds("timeout", self.timeout),
            "expires": _seconds("expires", self.expires),
            "priority": self.priority,
            "headers": _headers(self.headers) if self.headers else None,
            "id": self.id or None,
        }


class Ending(msgspec.Struct, frozen=True, gc=False):
    """How messages are given back."""

    delay: int | None
    error: Reason | None
    failed: bool
    dead: bool
    exhausted: bool = False

    def fields(self) -> dict[str, Any]:
        """As the fields of a command."""
        delay = _seconds("delay", self.delay)
        error = None if self.error is None else text_of_reason(self.error)
        said = {"delay": delay, "error": error, "failed": self.failed, "dead": self.dead}
        return said | ({"exhausted": True} if self.exhausted else {})


def publish(queue: str, body: Body, options: Options) -> Request[str]:
    """One message; its uid comes back."""
    text, encoding = _text_of(body)
    return Request(wire.Pub(qname=queue, message=text, enc=encoding, **options.fields()), _read_uid)


def publish_many(queue: str, bodies: Sequence[Body], options: Options) -> Request[list[str]]:
    """A batch; the uids come back in the same order."""
    items = [body if type(body) is str else _item(body) for body in bodies]
    return Request(wire.Pub(qname=queue, messages=items, **options.fields()), _read_uids)


def batch_of(bodies: Iterable[Body]) -> list[Body]:
    """The bodies of a batch; one that stands for itself would be a batch of its letters."""
    if isinstance(bodies, str | bytes | bytearray | memoryview | Mapping) or not isinstance(bodies, Iterable):
        raise BadField(f"{_shown(bodies)} is not a batch; give publish_many a list of bodies, or publish one body")
    return list(bodies)


def fetch(
    queue: str, wait: float, make: MessageMaker[AnyMessage], timeout: int | None = None
) -> Request[AnyMessage | None]:
    """The next message, or None."""

    def read(reply: wire.Reply) -> AnyMessage | None:
        if isinstance(reply, wire.Msg):
            return make(queue, reply)
        expect(reply, wire.Nomsg)
        return None

    return Request(wire.Fet(qname=queue, wait=_wait(wait), timeout=_seconds("timeout", timeout)), read)


def fetch_many(
    queue: str, count: int, wait: float, make: MessageMaker[AnyMessage], timeout: int | None = None
) -> Request[list[AnyMessage]]:
    """Up to `count` messages."""

    def read(reply: wire.Reply) -> list[AnyMessage]:
        if isinstance(reply, wire.Msgs):
            return [make(queue, one) for one in reply.messages]
        expect(reply, wire.Nomsg)
        return []

    return Request(wire.Fet(qname=queue, count=count, wait=_wait(wait), timeout=_seconds("timeout", timeout)), read)


def facts_of(queue: str, one: "wire.Msg | wire.Delivery") -> dict[str, Any]:
    """What was delivered, as the fields of a message."""
    facts: dict[str, Any] = {
        "queue": queue,
        "uid": one.uid,
        "body": wire.bytes_of(one),
        "lease": one.lease,
        "delivery": one.error_count + 1,
        "failures": one.error_count if one.failures is None else one.failures,
        "priority": one.priority,
    }
    if one.headers:
        facts["headers"] = one.headers
    return facts


def ack(queue: str, uids: Sequence[str], lease: str | None, then: Then) -> Request[bool]:
    """Done with, and what follows from it."""
    followups = [one if isinstance(one, wire.Followup) else _followup(one) for one in then] or None
    return Request(wire.Ack(qname=queue, publish=followups, **_which(uids, lease)), _read_known)


def nack(queue: str, uids: Sequence[str], lease: str | None, ending: Ending) -> Request[bool]:
    """Given back."""
    return Request(wire.Nack(qname=queue, **ending.fields(), **_which(uids, lease)), _read_known)


def touch(queue: str, uids: Sequence[str], lease: str | None, timeout: int | None) -> Request[bool]:
    """Kept for longer."""
    return Request(wire.Touch(qname=queue, timeout=_seconds("timeout", timeout), **_which(uids, lease)), _read_known)


def ack_many(messages: Sequence[Received]) -> Request[Settled]:
    """Done with, each by its own lease."""
    return Request(wire.Ack(**_held(messages)), lambda reply: _read_settled(reply, messages))


def nack_many(messages: Sequence[Received], ending: Ending) -> Request[Settled]:
    """Given back, each by its own lease."""
    return Request(wire.Nack(**ending.fields(), **_held(messages)), lambda reply: _read_settled(reply, messages))


def touch_many(messages: Sequence[Received], timeout: int | None) -> Request[Settled]:
    """Kept for longer, each by its own lease."""
    command = wire.Touch(timeout=_seconds("timeout", timeout), **_held(messages))
    return Request(command, lambda reply: _read_settled(reply, messages))


# Workers --------------------------------------------------------------------------------------------------


def subscribe(queue: str) -> Request[None]:
    """Join those who work on a queue."""
    return Request(wire.Sub(qname=queue), _done(wire.Oksub))


def unsubscribe(queue: str) -> Request[None]:
    """Leave them."""
    return Request(wire.Uns(qname=queue), _done(wire.Okuns))


def sleep(queue: str) -> Request[None]:
    """Be woken when there is something."""
    return Request(wire.Islp(qname=queue, wake="ready"), _done(wire.Okslp))


# Queues ---------------------------------------------------------------------------------------------------


def queues(prefix: str) -> Request[list[dict[str, Any]]]:
    """Which queues there are."""
    return Request(wire.List(prefix=prefix), lambda reply: expect(reply, wire.Queues).queues)


def stats(queue: str | None) -> Request[dict[str, Any]]:
    """Counts and policies."""
    return Request(wire.Stats(qname=queue), lambda reply: expect(reply, wire.StatsReply).stats)


def cluster(do: str, node: int | None, address: str) -> Request[dict[str, Any]]:
    """What an operator asks of the cluster."""
    command = wire.Cluster(do=do, node=node, address=address)  # type: ignore[arg-type]  # the broker knows the words
    return Request(command, lambda reply: expect(reply, wire.ClusterReply).cluster)


def peek(queue: str, count: int, state: str) -> Request[list[dict[str, Any]]]:
    """What is in a queue."""
    command = wire.Peek(qname=queue, count=count, state=state)  # type: ignore[arg-type]  # the broker knows the states
    return Request(command, lambda reply: expect(reply, wire.Peeked).messages)


def create_queue(queue: str, policies: dict[str, Any]) -> Request[None]:
    """A new queue."""
    return Request(wire.Create(qname=queue, **_policies(policies)), _done(wire.Okcreate))


def update_queue(queue: str, policies: dict[str, Any]) -> Request[None]:
    """Other policies."""
    return Request(wire.Update(qname=queue, **_policies(policies)), _done(wire.Okupdate))


def delete_queue(queue: str) -> Request[None]:
    """No such queue any more."""
    return Request(wire.Drop(qname=queue), _done(wire.Okdrop))


def purge(queue: str) -> Request[int]:
    """No messages any more; how many there were comes back."""
    return Request(wire.Purge(qname=queue), lambda reply: expect(reply, wire.Purged).count)


def ping() -> Request[None]:
    """A sign of life."""
    return Request(wire.Ping(), _done(wire.Pong))


# Arguments ------------------------------------------------------------------------------------------------


def _seconds(name: str, span: float | None) -> int | None:
    """A span that the broker counts in whole seconds."""
    if span is None or type(span) is int:
        return span
    if isinstance(span, float) and span.is_integer():
        return int(span)
    raise BadField(f"{name} is {span!r}; give a whole number of seconds (only `wait` may have a fraction)")


def _wait(span: float) -> float:
    """A span that may have a fraction."""
    if isinstance(span, int | float) and 0 <= span < float("inf"):
        return float(span)
    raise BadField(f"wait is {span!r}; give seconds, 0 or more (at most an hour at a time)")


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Names and values, all of them text that can be sent."""
    for name, value in headers.items():
        for text in (name, value):
            if not isinstance(text, str):
                kind = type(text).__name__
                raise BadField(f"header {_shown(name)}: {_shown(text)} is {kind}, and headers are text: give a str")
            if not text.isascii():
                _check_utf8(name, text)
    return {plain_text(name): plain_text(value) for name, value in headers.items()}


def _check_utf8(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadField(f"header {name!r} cannot be sent as UTF-8 ({error}); encode it first") from None


def _shown(value: object) -> str:
    """A value as an error quotes it."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."


def _text_of(body: Body) -> tuple[str, Any]:
    return (plain_text(body), None) if isinstance(body, str) else wire.text_of(bytes_of_body(body))


def _item(body: Body) -> str | wire.Item:
    text, encoding = _text_of(body)
    return text if encoding is None else wire.Item(message=text, enc=encoding)


def _followup(pair: tuple[str, Body]) -> wire.Followup:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise BadField(f"{_shown(pair)} is not a follow-up; `then` takes a list of (queue, body) pairs")
    queue, body = pair
    text, encoding = _text_of(body)
    return wire.Followup(qname=queue, message=text, enc=encoding)


def _which(uids: Sequence[str], lease: str | None) -> dict[str, Any]:
    """The fields that name messages: one, with its lease, or many."""
    if not uids:
        raise BadField("no uid; name at least one message")
    if odd := next((uid for uid in uids if not isinstance(uid, str)), None):
        raise BadField(f"{_shown(odd)} is not a uid; give the text that publish returned, or message.uid")
    if len(uids) == 1:
        return {"uid": uids[0], "lease": lease}
    if lease is not None:
        raise BadField("a lease belongs to one message; name one uid, or no lease")
    return {"uids": list(uids)}


def _held(messages: Sequence[Received]) -> dict[str, Any]:
    """The fields that name messages in our hands, each with its lease."""
    if len({message.queue for message in messages}) != 1:
        raise BadField("these messages are not of one queue; settle those of each queue together")
    return {
        "qname": messages[0].queue,
        "uids": [message.uid for message in messages],
        "leases": [message.lease for message in messages],
    }


def _policies(policies: dict[str, Any]) -> dict[str, Any]:
    """The policies as the command's fields."""
    known = set(wire.Policies.__struct_fields__) - {"qname", "cmd_id"}
    for name in policies:
        if name not in known:
            raise BadField(f"{name} is not a policy; the policies are {', '.join(sorted(known))}")
    if not isinstance(policies.get("retry"), Mapping):
        return policies
    try:
        return {**policies, "retry": msgspec.convert(policies["retry"], wire.Retry)}
    except msgspec.ValidationError as error:
        raise BadField(f"retry: {error}; it takes backoff, base, max and jitter") from None


# Replies --------------------------------------------------------------------------------------------------


def expect(reply: wire.Reply, kind: type[AnyReply]) -> AnyReply:
    """The reply, which is of this kind; a refusal is raised as its error."""
    if isinstance(reply, kind):
        return reply
    if isinstance(reply, wire.Nok):
        raise error_of(reply)
    said, wanted = type(reply).__name__.lower(), kind.__name__.lower()
    raise NotTheProtocol(f"the broker answered {said} where {wanted} was due; is it older than this client?")


def _done(kind: type[AnyReply]) -> Callable[[wire.Reply], None]:
    """A reply that says nothing but yes."""

    def read(reply: wire.Reply) -> None:
        expect(reply, kind)

    return read


def _read_uid(reply: wire.Reply) -> str:
    uid = expect(reply, wire.Ok).uid
    if uid is None:
        raise NotTheProtocol("the broker published a message and gave no uid; is it older than this client?")
    return uid


def _read_uids(reply: wire.Reply) -> list[str]:
    return expect(reply, wire.Ok).uids or []


def _read_known(reply: wire.Reply) -> bool:
    """Whether the broker knew every message."""
    if isinstance(reply, (wire.Okack, wire.Oknack, wire.Oktouch)):
        return reply.known and not reply.unknown
    if isinstance(reply, wire.Nok) and reply.err == MessageNotFound.code:  # with follow-ups: nothing was done
        return False
    expect(reply, wire.Okack)
    return True


def _read_settled(reply: wire.Reply, messages: Sequence[Received]) -> Settled:
    """Which of them were done, unknown or stale."""
    unknown = getattr(reply, "unknown", None) or ()
    if isinstance(reply, wire.Nok) and reply.err == StaleLease.code and reply.stale:
        return Settled(reply.uids or (), unknown, reply.stale)
    _read_known(reply)
    missing = set(unknown)
    return Settled([one.uid for one in messages if one.uid not in missing], unknown)
