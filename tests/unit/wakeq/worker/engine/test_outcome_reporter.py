"""Proves how outcomes are told to the broker: many in one command, a bounded number at once, until they are heard."""

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.unit.wakeq.worker.world import in_driven_time
from wakeq.client.core.requests import Settled
from wakeq.client.message import Received, Then
from wakeq.protocol.errors import BrokerUnreachable, QueueNotFound
from wakeq.worker.engine.outcome_reporter import MESSAGES_MAX, UNDER_WAY_MAX, UNREPORTABLE, OutcomeReporter
from wakeq.worker.outcome import DONE, Failed


class Recorder:
    """A client that writes down what is said; its answers take a second."""

    def __init__(self) -> None:
        self.said: list[tuple[str, list[str]]] = []
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
        self.said.append((what, list(uids)))
        self.under_way += 1
        self.under_way_most = max(self.under_way, self.under_way_most)
        await asyncio.sleep(1)
        self.under_way -= 1
        if self.errors:
            raise self.errors.pop(0)


def message(uid: str, queue: str = "q") -> Received:
    return Received(queue=queue, uid=uid, body=b"", lease="1", delivery=1)


def test_what_ended_together_is_said_together() -> None:
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

        assert sorted(client.said) == [
            ("ack", ["a0", "a1", "a2", "a3", "a4"]), ("ack", ["b"]), ("no", ["c", "d"]), ("why", ["e"]),
        ]  # fmt: skip

    in_driven_time(scenario)


def test_a_command_is_no_longer_than_the_broker_takes() -> None:
    async def scenario() -> None:
        client = Recorder()
        reporter = OutcomeReporter(client)
        for place in range(2 * MESSAGES_MAX + 1):
            reporter.add(message(f"a{place}"), DONE)

        reporter.flush()
        await asyncio.sleep(0)

        assert sorted(len(uids) for _, uids in client.said) == [1, MESSAGES_MAX, MESSAGES_MAX]

    in_driven_time(scenario)


def test_not_all_is_said_at_once_and_all_is_said_in_the_end() -> None:
    async def scenario() -> None:
        client = Recorder()
        reporter = OutcomeReporter(client)
        for place in range(3 * UNDER_WAY_MAX):
            reporter.add(message(f"a{place}"), Failed(f"error {place}"))

        reporter.flush()
        assert not reporter.idle
        await asyncio.sleep(10)

        assert client.under_way_most == UNDER_WAY_MAX
        assert len(client.said) == 3 * UNDER_WAY_MAX
        assert reporter.idle

    in_driven_time(scenario)


def test_after_it_was_given_up_nothing_is_said_again() -> None:
    async def scenario() -> None:
        client = Recorder()
        client.errors = [BrokerUnreachable("away")]
        reporter = OutcomeReporter(client)
        reporter.add(message("a"), DONE)
        reporter.flush()
        await asyncio.sleep(0)

        reporter.give_up()
        await asyncio.sleep(60)

        assert len(client.said) == 1
        assert reporter.idle

    in_driven_time(scenario)


def test_a_refusal_for_good_is_not_said_again() -> None:
    async def scenario() -> None:
        client = Recorder()
        client.errors = [QueueNotFound("the queue was deleted")]
        reporter = OutcomeReporter(client)
        reporter.add(message("a"), DONE)

        reporter.flush()
        await asyncio.sleep(60)

        assert len(client.said) == 1
        assert reporter.idle

    in_driven_time(scenario)


def test_what_cannot_be_said_costs_its_own_message_and_no_other() -> None:
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

        assert client.said == [("odd", ["a"]), ("ack", ["b"]), (UNREPORTABLE.error, ["a"])]
        assert reporter.idle

    in_driven_time(scenario)


def test_what_can_never_be_said_is_left_to_its_lease() -> None:
    async def scenario() -> None:
        client = Recorder()
        client.errors += [TypeError("cannot be encoded"), TypeError("nor can that")]
        reporter = OutcomeReporter(client)
        reporter.add(message("a"), Failed("odd"))
        reporter.flush()

        await asyncio.sleep(5)

        assert len(client.said) == 2
        assert reporter.idle

    in_driven_time(scenario)
