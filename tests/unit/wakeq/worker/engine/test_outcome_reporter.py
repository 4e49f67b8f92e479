"""Tests of outcome_reporter.py: shared commands, bounded outstanding commands, and repetitions."""

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.helpers.loops.driven import in_driven_time
from wakeq.client.message import Received, Then
from wakeq.client.requests import Settled
from wakeq.protocol.errors import BrokerUnreachable, QueueNotFound
from wakeq.worker.engine.outcome_reporter import MESSAGES_MAX, UNDER_WAY_MAX, UNREPORTABLE, OutcomeReporter
from wakeq.worker.outcome import DONE, Failed


class Recorder:
    """A client that records its commands; its answers take a second."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, list[str]]] = []
        self.under_way = self.under_way_most = 0
        self.errors: list[Exception] = []

    async def ack(self, queue: str, *uids: str, lease: str | None = None, then: Then = ()) -> bool:
        await self._hear("chain", uids)
        return True

    async def ack_many(self, messages: Sequence[Received]) -> Settled:
        await self._hear("ack", [one.uid for one in messages])
        return Settled()

    async def nack_many(self, messages: Sequence[Received], **options: Any) -> Settled:
        await self._hear(options["error"], [one.uid for one in messages])
        return Settled()

    async def _hear(self, what: str, uids: Sequence[str]) -> None:
        self.sent.append((what, list(uids)))
        self.under_way += 1
        self.under_way_most = max(self.under_way, self.under_way_most)
        await asyncio.sleep(1)
        self.under_way -= 1
        if self.errors:
            raise self.errors.pop(0)


def message(uid: str, queue: str = "q") -> Received:
    return Received(queue=queue, uid=uid, body=b"", lease="1", delivery=1)


def test_equal_outcomes_share_one_command() -> None:
    async def scenario() -> None:
        client = Recorder()
        reporter = OutcomeReporter(client)
        for place in range(5):
            reporter.add(message(f"a{place}"), DONE)
        reporter.add(message("b", "other"), DONE)
        reporter.add(message("c"), Failed("no", 3))
        reporter.add(message("d"), Failed("no", 3))
        reporter.add(message("e"), Failed("why", 3))

        reporter.flush()
        await asyncio.sleep(0)

        assert sorted(client.sent) == [
            ("ack", ["a0", "a1", "a2", "a3", "a4"]), ("ack", ["b"]), ("no", ["c", "d"]), ("why", ["e"]),
        ]  # fmt: skip

    in_driven_time(scenario)


def test_command_has_at_most_as_many_messages_as_the_broker_accepts() -> None:
    async def scenario() -> None:
        client = Recorder()
        reporter = OutcomeReporter(client)
        for place in range(2 * MESSAGES_MAX + 1):
            reporter.add(message(f"a{place}"), DONE)

        reporter.flush()
        await asyncio.sleep(0)

        assert sorted(len(uids) for _, uids in client.sent) == [1, MESSAGES_MAX, MESSAGES_MAX]

    in_driven_time(scenario)


def test_outstanding_commands_are_bounded_and_all_are_sent_in_the_end() -> None:
    async def scenario() -> None:
        client = Recorder()
        reporter = OutcomeReporter(client)
        for place in range(3 * UNDER_WAY_MAX):
            reporter.add(message(f"a{place}"), Failed(f"error {place}"))

        reporter.flush()
        assert not reporter.idle
        await asyncio.sleep(10)

        assert client.under_way_most == UNDER_WAY_MAX
        assert len(client.sent) == 3 * UNDER_WAY_MAX
        assert reporter.idle

    in_driven_time(scenario)


def test_no_command_is_repeated_after_give_up() -> None:
    async def scenario() -> None:
        client = Recorder()
        client.errors = [BrokerUnreachable("away")]
        reporter = OutcomeReporter(client)
        reporter.add(message("a"), DONE)
        reporter.flush()
        await asyncio.sleep(0)

        reporter.give_up()
        await asyncio.sleep(60)

        assert len(client.sent) == 1
        assert reporter.idle

    in_driven_time(scenario)


def test_finally_refused_outcome_is_not_repeated() -> None:
    async def scenario() -> None:
        client = Recorder()
        client.errors = [QueueNotFound("the queue was deleted")]
        reporter = OutcomeReporter(client)
        reporter.add(message("a"), DONE)

        reporter.flush()
        await asyncio.sleep(60)

        assert len(client.sent) == 1
        assert reporter.idle

    in_driven_time(scenario)


def test_outcome_that_cannot_be_sent_is_replaced_and_affects_no_other() -> None:
    async def scenario() -> None:
        client = Recorder()
        client.errors.append(TypeError("cannot be encoded"))
        reporter = OutcomeReporter(client)
        reporter.add(message("a"), Failed("odd"))
        reporter.flush()
        await asyncio.sleep(0.5)
        reporter.add(message("b"), DONE)
        reporter.flush()

        await asyncio.sleep(5)

        assert client.sent == [("odd", ["a"]), ("ack", ["b"]), (UNREPORTABLE.error, ["a"])]
        assert reporter.idle

    in_driven_time(scenario)


def test_message_is_left_to_its_lease_if_nothing_can_be_sent() -> None:
    async def scenario() -> None:
        client = Recorder()
        client.errors += [TypeError("cannot be encoded"), TypeError("nor can that")]
        reporter = OutcomeReporter(client)
        reporter.add(message("a"), Failed("odd"))
        reporter.flush()

        await asyncio.sleep(5)

        assert len(client.sent) == 2
        assert reporter.idle

    in_driven_time(scenario)
