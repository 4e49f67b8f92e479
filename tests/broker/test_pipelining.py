"""A client that pipelines hears what it would hear if it waited for each answer, however its bytes and the disk come.

The same commands are asked one by one of one broker, and in pieces, on a slow disk, of another.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.brokers.by_hand import Json
from tests.helpers.disks.memory_folder import memory_folder
from wakeq.protocol.uid import UidMaker

NAMES = ["a", "b"]
LENGTH = 60
NUMBERS = 12  # of messages that commands name, also before they are there


@pytest.fixture
def brokers(directory: Path) -> Iterator[list[Broker]]:
    with memory_folder() as other:
        made = [Broker(directory), Broker(other)]
        yield made
        for broker in made:
            broker.close()


def prepared(broker: Broker) -> Client:
    """A client of a broker whose queues have the same ids as in any other one."""
    client = broker.client()
    for name in NAMES:
        client.call("CREATE", name, retry={"backoff": "fixed", "base": 0})
    client.call("HELLO", session="s")
    return client


class Script:
    """Commands that are drawn; those that settle name messages by the uids that they will have."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self.draw = random.Random(seed)
        self.uids = {
            name: [UidMaker(record.id).uid(number) for number in range(1, NUMBERS + 1)]
            for name, record in broker.queues.catalog.queues.items()
        }
        self.ordinal = 0

    def command(self) -> Json:
        draw = self.draw
        name = draw.choice(NAMES)
        cmd = draw.choice(["PUB"] * 6 + ["FET"] * 5 + ["ACK"] * 4 + ["NACK", "TOUCH", "SUB", "PING", "BAD"])
        command: Json = {"cmd": cmd, "qname": name}
        if draw.random() < 0.3:
            command["cmd_id"] = draw.randint(1, 9)
        if cmd in ("ACK", "NACK", "TOUCH"):
            return command | self.settled(cmd, name)
        if cmd == "FET" and draw.random() < 0.4:
            command["count"] = draw.randint(1, 4)
        if cmd == "PUB":
            command |= self.published()
        return command

    def settled(self, cmd: str, name: str) -> Json:
        draw = self.draw
        uids = draw.sample(self.uids[name], 2)
        fields: Json = {"uids": uids} if draw.random() < 0.3 else {"uid": uids[0]}
        if cmd == "ACK" and draw.random() < 0.3:
            fields["publish"] = [{"qname": draw.choice(NAMES), "message": "f"} for _ in range(draw.randint(1, 2))]
        return fields

    def published(self) -> Json:
        draw = self.draw
        fields: Json = {"messages": ["x", "y"]} if draw.random() < 0.2 else {"message": str(draw.random())}
        if draw.random() < 0.2:
            self.ordinal += draw.choice([0, 1, 1])
            fields["n"] = max(self.ordinal, 1)
        elif draw.random() < 0.1:
            fields["id"] = draw.choice("ij")
        return fields


def asked_at_once(broker: Broker, client: Client, commands: list[Json], draw: random.Random) -> list[Json]:
    """Send in pieces of any size, while the disk is held and let go."""
    replies: list[Json] = []
    while commands:
        size = draw.choice([1, 1, 2, 5, 20])
        client.send(*commands[:size])
        commands = commands[size:]
        if draw.random() < 0.7:
            replies += client.take()
        broker.log_disk.held = draw.random() < 0.7
        if not broker.log_disk.held:
            broker.log_disk.complete()
    broker.log_disk.held = False
    broker.log_disk.complete()
    return replies + client.take()


@pytest.mark.parametrize("seed", range(40))
def test_commands_in_a_row_are_answered_as_if_each_had_waited(brokers: list[Broker], seed: int) -> None:
    patient, hasty = (prepared(broker) for broker in brokers)
    script = Script(brokers[0], seed)
    commands = [script.command() for _ in range(LENGTH)]

    expected = [reply for command in commands for reply in patient.ask(command)]
    replies = asked_at_once(brokers[1], hasty, commands, random.Random(seed))

    assert replies == expected


def test_a_follow_up_stands_behind_what_came_back_before_it(broker: Broker, client: Client) -> None:
    back, done = client.publish("a", "back"), client.publish("b", "done")
    client.fetch("a")
    client.fetch("b")

    broker.log_disk.held = True
    client.send(
        {"cmd": "NACK", "qname": "a", "uid": back},
        {"cmd": "ACK", "qname": "b", "uid": done, "publish": [{"qname": "a", "message": "follow-up"}]},
        {"cmd": "FET", "qname": "a", "count": 2},
    )
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert [message["msg"] for message in client.take()[-1]["messages"]] == ["back", "follow-up"]


def test_a_follow_up_is_not_there_yet_for_an_acknowledgement_that_came_before_it(
    broker: Broker, client: Client
) -> None:
    done = client.publish("b", "done")
    client.call("CREATE", "a")
    client.fetch("b")
    coming = UidMaker(broker.queues.catalog.queues["a"].id).uid(1)

    unknown, published = client.ask(
        {"cmd": "ACK", "qname": "a", "uid": coming},
        {"cmd": "ACK", "qname": "b", "uid": done, "publish": [{"qname": "a", "message": "follow-up"}]},
    )

    assert unknown["known"] is False
    assert published["published"] == [coming]
    assert client.fetch("a")["uid"] == coming
