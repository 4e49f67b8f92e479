"""Tests of redrive.py with both clients and the broker in memory."""

import asyncio
from typing import Any

import pytest

from tests.helpers.brokers.scripted import scripted
from wakeq import Client, errors
from wakeq.client import redrive as redrive_module
from wakeq.client.redrive import Redriven
from wakeq.client.requests import Request
from wakeq.protocol.wire.worker import codec as wire
from wakeq.testing import broker
from wakeq.testing.memory_broker import Broker

Q, DEAD = "emails", "emails.dead"


def die(b: Broker, *bodies: str, queue: str = Q) -> None:
    """Make dead letters of these bodies."""
    for body in bodies:
        b.publish(queue, body, priority=-3, headers={"trace": body})
        message = b.fetch(queue)
        assert message is not None
        message.reject("it will never succeed")


def bodies_of(b: Broker, queue: str) -> list[str]:
    return [message["msg"] for message in b.peek(queue, 100, state="any")]


def steps_of(b: Broker, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each step from now on adds the number of its letters."""
    call, steps = b._caller.call, list[int]()

    def call_and_note(request: Request[Any]) -> Any:
        if isinstance(request.command, wire.Ack):
            steps.append(len(request.command.uids or [request.command.uid]))
        return call(request)

    monkeypatch.setattr(b._caller, "call", call_and_note)
    return steps


def test_dead_letters_go_back_to_their_origins() -> None:
    with broker() as b:
        b.create_queue("orders", dead_letter=DEAD)
        die(b, "first", "second")
        die(b, "third", queue="orders")

        assert b.redrive(DEAD) == Redriven(done=3, left=0)

        assert (bodies_of(b, Q), bodies_of(b, "orders"), bodies_of(b, DEAD)) == (["first", "second"], ["third"], [])


def test_redriven_message_keeps_its_fields_and_counts_redrives() -> None:
    with broker() as b:
        die(b, "x")
        b.redrive(DEAD)
        message = b.fetch(Q)
        assert message is not None
        message.reject("again")

        b.redrive(DEAD)

        message = b.fetch(Q)
        assert message is not None
        assert (message.body, message.priority, message.delivery) == (b"x", -3, 1)
        assert dict(message.headers) == {"trace": "x", "wakeq-redriven": "2"}


def test_binary_body_is_redriven_unchanged() -> None:
    with broker() as b:
        b.publish(Q, b"\xff\x00")
        message = b.fetch(Q)
        assert message is not None
        message.reject("no")

        b.redrive(DEAD)

        message = b.fetch(Q)
        assert message is not None
        assert message.body == b"\xff\x00"


def test_count_and_target_are_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_module, "BATCH_MAX", 2)
    with broker() as b:
        die(b, *"abcde")

        assert b.redrive(DEAD, 3, to="elsewhere") == Redriven(done=3, left=0)

        assert (bodies_of(b, "elsewhere"), bodies_of(b, DEAD)) == (["a", "b", "c"], ["d", "e"])


def test_redrive_tells_how_many_it_has_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_module, "BATCH_MAX", 2)
    told: list[tuple[int, int]] = []
    with broker() as b:
        die(b, *"abcde")

        b.redrive(DEAD, tell=lambda done, total: told.append((done, total)))

    assert told == [(2, 5), (4, 5), (5, 5)]


def test_letter_without_origin_stays_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_module, "BATCH_MAX", 1)
    with broker() as b:
        b.publish(DEAD, "by hand", priority=-9)
        die(b, "x")

        assert b.redrive(DEAD) == Redriven(done=1, left=1)

        (stays,) = b.peek(DEAD)
        assert (stays["msg"], stays["state"], stays["failures"]) == ("by hand", "ready", 0)


def test_letter_that_fails_again_is_not_moved_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_module, "BATCH_MAX", 1)
    with broker() as b:
        die(b, "a", "b")
        call = b._caller.call

        def call_and_fail(request: Request[Any]) -> Any:
            result = call(request)
            if isinstance(request.command, wire.Ack) and (message := b.fetch(Q)) is not None:
                message.reject("again")
            return result

        monkeypatch.setattr(b._caller, "call", call_and_fail)

        assert b.redrive(DEAD) == Redriven(done=2, left=0)

        assert sorted(bodies_of(b, DEAD)) == ["a", "b"]


def test_refusal_ends_the_redrive_without_loss_or_duplicate() -> None:
    with broker() as b:
        die(b, *"abc")
        b.update_queue(Q, max_size=1)

        with pytest.raises(errors.QueueFull):
            b.redrive(DEAD)

        assert (bodies_of(b, Q), bodies_of(b, DEAD)) == (["a"], ["b", "c"])
        # No letter is left leased.
        assert b.stats(DEAD)["ready"] == 2


def test_letter_taken_by_another_client_is_not_published_again() -> None:
    with broker() as b:
        die(b, "x")
        steps = redrive_module.redrive(DEAD, None, None)
        request = next(steps)
        # The first request is for the counts.
        request = steps.send(b._caller.call(request))
        fetched = b._caller.call(request)
        b.ack(DEAD, fetched[0].uid)
        request = steps.send(fetched)
        with pytest.raises(StopIteration) as end:
            steps.send(b._caller.call(request))

        assert end.value.value == Redriven(done=0, left=0)
        assert bodies_of(b, Q) == []


def test_letters_that_fit_are_moved_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_module, "STEP_BYTES_MAX", 10)
    with broker() as b:
        die(b, *"abcd")
        die(b, "elevenbytes", "twelve bytes")
        moved = steps_of(b, monkeypatch)

        assert b.redrive(DEAD) == Redriven(done=6, left=0)

        assert moved == [4, 1, 1]
        assert bodies_of(b, Q) == [*"abcd", "elevenbytes", "twelve bytes"]


def test_refused_step_is_repeated_letter_by_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    with broker() as b:
        die(b, *"abc")
        call = b._caller.call

        def call_after_somebody_else(request: Request[Any]) -> Any:
            if isinstance(request.command, wire.Ack) and request.command.uids:
                b.ack(DEAD, request.command.uids[1])
            return call(request)

        monkeypatch.setattr(b._caller, "call", call_after_somebody_else)

        assert b.redrive(DEAD) == Redriven(done=2, left=0)

        assert (bodies_of(b, Q), bodies_of(b, DEAD)) == (["a", "c"], [])


def test_default_queue_is_redriven_like_any_other() -> None:
    with broker() as b:
        die(b, "named")

        assert b.redrive(DEAD, to="") == Redriven(done=1, left=0)

        assert bodies_of(b, "") == ["named"]


def test_move_of_a_letter_is_one_command() -> None:
    seen: list[wire.Command] = []
    letter = wire.Delivery(uid="u", error_count=0, msg="x", lease="1-1", headers={"wakeq-origin": Q})

    def script(_: int, command: wire.Command) -> wire.Reply:
        seen.append(command)
        match command:
            case wire.Stats():
                return wire.StatsReply(stats={"ready": 1}, cmd_id=command.cmd_id)
            case wire.Fet():
                return wire.Msgs(qname=DEAD, messages=[letter], cmd_id=command.cmd_id)
            case _:
                return wire.Okack(cmd_id=command.cmd_id)

    with scripted(script) as address, Client(address) as client:
        client.redrive(DEAD)

    _, _, ack = seen
    assert isinstance(ack, wire.Ack)
    assert (ack.uid, ack.lease) == ("u", "1-1")
    assert ack.publish == [wire.Followup(qname=Q, message="x", priority=0, headers={"wakeq-redriven": "1"})]


def test_async_client_redrives_alike() -> None:
    async def work(b: Broker) -> Redriven:
        async with b.async_client() as client:
            return await client.redrive(DEAD)

    with broker() as b:
        die(b, "x")

        assert asyncio.run(work(b)) == Redriven(done=1, left=0)
        assert bodies_of(b, Q) == ["x"]


@pytest.mark.parametrize("count", [0, -1, 1.5, "2", True])
def test_invalid_count_is_refused(count: int) -> None:
    with broker() as b, pytest.raises(errors.BadField, match=r"count is .*; give a number of messages"):
        b.redrive(DEAD, count)


def test_redrive_of_a_queue_to_itself_is_refused() -> None:
    with broker() as b, pytest.raises(errors.BadField, match="name another queue"):
        b.redrive(DEAD, to=DEAD)


def test_missing_queue_raises_queue_not_found() -> None:
    with broker() as b, pytest.raises(errors.QueueNotFound):
        b.redrive(DEAD)


def test_letter_with_foreign_origin_stays_until_it_is_allowed() -> None:
    with broker() as b:
        b.create_queue("b1")
        b.create_queue("orders", dead_letter=DEAD)
        die(b, "own")
        die(b, "sent here", queue="orders")
        for origin in ("b1", "b1", "nowhere"):
            b.publish(DEAD, "planted", headers={"wakeq-origin": origin})

        assert b.redrive(DEAD) == Redriven(done=2, left=3, strangers=("b1", "nowhere"))
        assert (bodies_of(b, Q), bodies_of(b, "orders"), bodies_of(b, "b1")) == (["own"], ["sent here"], [])
        assert bodies_of(b, DEAD) == ["planted"] * 3

        assert b.redrive(DEAD, anywhere=True) == Redriven(done=3, left=0)
        assert (bodies_of(b, "b1"), bodies_of(b, "nowhere")) == (["planted"] * 2, ["planted"])


def test_letters_of_a_deleted_queue_go_back_by_its_name() -> None:
    with broker() as b:
        die(b, "x")
        b.delete_queue(Q)

        assert b.redrive(DEAD) == Redriven(done=1, left=0)
        assert bodies_of(b, Q) == ["x"]
