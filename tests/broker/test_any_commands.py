"""Any commands, in any order, from several clients: every one is answered, nothing fails, the contracts hold.

The commands are drawn, with values at the edges of their ranges, while disks are slow, time jumps, connections end
and the broker crashes.  A failing seed is printed by its number and can be run again.
"""

import random
from base64 import b64encode
from typing import Any

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.examples import seeds
from wakeq.protocol.queue.ledger.staging import Staging
from wakeq.protocol.wire.worker.blocks import pack

Json = dict[str, Any]
EDGES = [-(2**63), 2**63 - 1, 0, -1, 1, 2**31, 2**32]
NAMES = ["", "a", "b", "a.dead", "x" * 255, "~"]
YEAR_S = 31_536_000
VERBS = (
    *("PUB", "FET", "ACK", "PUB", "FET", "ACK", "PUB", "FET", "DEL", "NACK", "NACK", "TOUCH", "SUB", "UNS", "ISLP"),
    *("PING", "HELLO", "CREATE", "UPDATE", "DROP", "LIST", "STATS", "PEEK", "PURGE"),
    *("STAGE", "STAGE", "SLICE", "RENEW", "SETTLE", "RELEASE", "STASH", "STASH", "UNSTASH", "PUBB", "FETB", "PEEKB"),
)
STAGED: dict[str, dict[str, list[Any]]] = {  # what must be given
    "STAGE": {"source": ["s", "t"], "epoch": [1, 2, 3, 4, 5], "slices": [1, 3, 1_000], "timeout": [5, 60]},
    "SLICE": {"source": ["s", "t"], "epoch": [1, 2, 3, 4], "slice": [0, 1, 2**63 - 1]},
    "RENEW": {"source": ["s", "t"], "timeout": [5, 86_400]},
    "SETTLE": {"source": ["s", "t"], "epoch": [0, 1, 2, 3, 2**63 - 1]},
    "RELEASE": {"source": ["s", "t"]},
    "STASH": {"stash": ["a", "b", "k" * 120], "part": [0, 1, 2**63 - 1], "keep": [5, 86_400], "messages": [["a", "b"]]},
    "UNSTASH": {"stashes": [[], [("a", 2)], [("a", 4), ("b", 2)], [("a", 2**63 - 1)]], "epoch": [0, 1, 2, 2**63 - 1]},
    "PUBB": {
        "rows": [2],
        "columns": [["body"]],
        "block": [b64encode(pack([("body", [b"x", b"yz"])])).decode(), "AAA="],
    },
}
POLICIES: dict[str, list[Any]] = {
    "max_size": [None, 0, 1, 5, 2**63 - 1],
    "max_bytes": [None, 0, 10, 2**63 - 1],
    "max_message_size": [None, 1, 2**63 - 1],
    "priority_min": [None, *EDGES],
    "priority_max": [None, *EDGES],
    "structure": ["H4", "QA", None],
    "timeout": [5, YEAR_S, None],
    "max_deliveries": [0, 1, 2],
    "dead_letter": [None, "a", "b", "x" * 255],
    "wake": ["all", "ready", "sleeper"],
    "lease": ["fast", "strict"],
    "on_disconnect": ["keep", "release"],
    "retry": [None, {"backoff": "exponential", "base": 0.5, "max": YEAR_S, "jitter": 1}, {"base": 1e-300, "max": 1}],
}
ITEMS: list[Any] = ["a", {"message": "b", "priority": -(2**63)}, {"msg": "c", "headers": {"k": "v"}}]
CHOICES: dict[str, dict[str, list[Any]]] = {
    "PUB": {
        "priority": EDGES,
        "delay": [0, 1, YEAR_S],
        "expires": [0, 1, 10 * YEAR_S],
        "timeout": [5, YEAR_S],
        "id": ["i", "j", "k" * 120, "\N{GRINNING FACE}" * 120],
        "n": [1, 2, 3, 1_025, 2**63 - 1],
        "headers": [{"a": "b"}, {"wakeq-error": "x" * 8_000}],
    },
    "FET": {"count": [1, 3, 1_000], "wait": [0.001, 1, 3_600]},
    "NACK": {
        "delay": [0, 1, YEAR_S],
        "error": ["e", "\N{LATIN SMALL LETTER E WITH ACUTE}" * 2_000],
        "failed": [True, False],
        "dead": [True, False],
    },
    "ISLP": {"wake": ["all", "ready"]},
    "TOUCH": {"timeout": [5, YEAR_S]},
    "HELLO": {"session": ["s"]},
    "PEEK": {"state": ["ready", "delayed", "leased", "any"], "count": [1, 100]},
    "CREATE": POLICIES,
    "UPDATE": POLICIES,
    "STAGE": {"count": [1, 3, 100_000]},
    "SLICE": {
        "offset": [1, 2**63 - 1],
        "count": [1, 100_000],
        "raw": [True, False],
        "reader": ["r"],
        "batch": [1, 2, 2**63 - 1],
        "run": ["x", "y"],
    },
    "STASH": {"delay": [1, YEAR_S], "expires": [1], "priority": EDGES, "writer": ["w", "v"], "epoch": [0, 1, 2]},
    "UNSTASH": {"writer": ["w", "v"], "reader": ["r"], "run": ["x", "y"], "id": ["i", "j"], "drop": [True, False]},
    "PUBB": {"delay": [1], "id": ["i", "j"], "n": [1, 2], "priority": EDGES},
    "FETB": {"count": [1, 100_000]},
    "PEEKB": {"after": [1, 5, 2**63 - 1], "last": [1, 9, 2**63 - 1], "count": [1, 100_000]},
}
LEASES = ["1-1", "1-0", "0-0", "9" * 18 + "-" + "9" * 18, "x", "1-2", "2-1"]
STRANGE_UIDS = ["zzzzzzz_zzzzzzzz", "0000000_00000000", "0000003_zzzzzzzz", "u" * 255, "0000003_00000001"]


class Crowd:
    """Some clients of one broker, and what was asked and answered."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self.broker = broker
        self.draw = random.Random(seed)
        self.clients: list[Client] = []
        self.open: dict[Client, int] = {}
        self.uids: list[str] = []

    def command(self) -> Json:
        draw = self.draw
        verb = draw.choice(VERBS)
        command: Json = {"cmd": verb}
        if verb not in ("LIST", "PING", "HELLO"):
            command["qname"] = draw.choice(NAMES)
        for name, values in STAGED.get(verb, {}).items():
            command[name] = draw.choice(values)
        for name, values in CHOICES.get(verb, {}).items():
            if draw.random() < 0.25:
                command[name] = draw.choice(values)
        if verb == "PUB":
            several = draw.random() < 0.3
            command |= (
                {"messages": draw.choices(ITEMS, k=3)} if several else {"message": draw.choice(["", "y" * 3_000])}
            )
        if verb in ("ACK", "DEL", "NACK", "TOUCH"):
            command |= self.settled(verb)
        if verb == "SLICE" and draw.random() < 0.5:
            command |= {"reader": "r", "batch": draw.choice([1, 2]), "run": draw.choice("xy")}
        if verb == "UNSTASH" and draw.random() < 0.5:
            command |= {"writer": "w", "epoch": draw.choice([1, 2]), "reader": "r", "run": draw.choice("xy")}
        return command

    def settled(self, verb: str) -> Json:
        draw = self.draw
        known = self.uids or STRANGE_UIDS
        uids = [draw.choice(known if draw.random() < 0.7 else STRANGE_UIDS) for _ in range(draw.randint(1, 3))]
        fields: Json = {"uid": uids[0]} if draw.random() < 0.7 else {"uids": uids}
        if draw.random() < 0.3:
            fields["lease"] = draw.choice(LEASES)
        if verb in ("ACK", "DEL") and draw.random() < 0.4:
            names = [*NAMES, *(f"new-{draw.randint(0, 99)}" for _ in range(6))]
            fields["publish"] = [{"qname": draw.choice(names), "message": "f"} for _ in range(draw.randint(1, 3))]
        return fields

    def step(self) -> None:
        draw, broker = self.draw, self.broker
        if len(self.clients) < 5:
            self.clients.append(broker.client())
        client = draw.choice(self.clients)
        commands = [self.command() for _ in range(draw.randint(1, 12))]
        self.open[client] = self.open.get(client, 0) + len(commands)
        for disk in (broker.log_disk, broker.state_disk, broker.reader_disk):
            chance = draw.random()
            if chance < 0.1:
                disk.held = True
            elif chance < 0.4:
                disk.held = False
                disk.complete()
        client.send(*commands)
        self.take(client)
        chance = draw.random()
        if chance < 0.1:
            broker.advance(draw.choice([0.01, 1, 6, 70]))
        elif chance < 0.12:
            self.clients.remove(client)
            self.open.pop(client)
            client.close()
        elif chance < 0.13:
            self.release()
            broker.crash_and_restart()
            self.clients.clear()
            self.open.clear()

    def take(self, client: Client) -> None:
        replies = client.take()
        self.open[client] = self.open.get(client, 0) - sum(reply["cmd"] != "awk" for reply in replies)
        for reply in replies:
            self.uids += [found["uid"] for found in (reply, *reply.get("messages", ())) if found.get("uid")]
        del self.uids[:-60]

    def release(self) -> None:
        for disk in (self.broker.log_disk, self.broker.state_disk, self.broker.reader_disk):
            disk.held = False
            disk.complete()
        self.broker.settle()

    def demand_answers(self) -> None:
        """No disk is slow and every wait is over: nobody is still without an answer."""
        self.release()
        self.broker.advance(3_700)
        for client in self.clients:
            self.take(client)
        assert all(count == 0 for count in self.open.values()), self.open

    def demand_what_lasts(self) -> None:
        """Each queue has an id of its own, and a start finds the same messages."""
        ids = [record.id for record in self.broker.queues.catalog.queues.values()]
        before = living(self.broker)
        self.broker.flush()
        self.broker.crash_and_restart()
        self.clients.clear()
        self.open.clear()

        assert len(set(ids)) == len(ids)
        assert living(self.broker) == before


def living(broker: Broker) -> dict[str, tuple[list[int], Any]]:
    """Return the numbers of the messages of each queue, and what is staged of them."""
    ledgers = {name: broker.queue(name).ledger for name in broker.queues.catalog.queues}
    return {name: (list(ledger.columns.living_numbers()), staged(ledger.staging)) for name, ledger in ledgers.items()}


def staged(staging: Staging | None) -> Any:
    return ({}, {}, {}, {}) if staging is None else (staging.sources, staging.stashes, staging.writers, staging.jobs)


@pytest.mark.parametrize("seed", seeds(3, of=24))
def test_random_commands_of_clients_are_answered_and_crash_nothing(broker: Broker, seed: int) -> None:
    crowd = Crowd(broker, seed)
    for _ in range(8):
        for _ in range(20):
            crowd.step()
        crowd.demand_answers()
        crowd.demand_what_lasts()

    assert broker.failures == []
    assert broker.runtime.failures == 0
