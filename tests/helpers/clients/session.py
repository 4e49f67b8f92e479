"""A client's session for tests: its commands and its reaction to replies, without a socket or a clock."""

from math import inf

from wakeq.client.session import Event, Greeted, Session
from wakeq.protocol.wire.worker import codec as wire

NOW_S = 100.0
ANSWER_S = 30.0


def sent(session: Session) -> list[wire.Command]:
    """Return the commands that the session sends now, as the broker reads them."""
    commands = wire.decode(session.bytes_to_send())
    assert not [bad for bad in commands if isinstance(bad, wire.Bad)]
    return commands  # type: ignore[return-value]


def online(session_id: str = "s", *, silence_limit_s: float = inf) -> Session:
    session = Session(session_id, answer_timeout_s=ANSWER_S, silence_limit_s=silence_limit_s)
    session.connected(NOW_S)
    session.bytes_to_send()
    assert events_for(session, wire.HelloReply(version="1")) == [Greeted()]
    return session


def events_for(session: Session, *replies: wire.Reply, now_s: float = NOW_S) -> list[Event]:
    """Return the events for these replies."""
    return session.receive(wire.encode(replies), now_s)


def message(ticket: int, uid: str = "u") -> wire.Msg:
    return wire.Msg(qname="q", uid=uid, error_count=0, msg="x", lease="1-1", cmd_id=ticket)
