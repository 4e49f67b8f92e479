"""W13 compares like with like: both orders of a mixture are the same commands, all of them obeyed and answered."""

import asyncio
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest

from bench.load.clients import PeerFailed
from bench.peers.wakeq import Wakeq
from bench.runner import run_cell
from bench.workloads import mixtures
from bench.workloads.mixtures import (
    FETCHES,
    FOLLOW_UPS,
    PUBLISHES,
    RANDOM,
    RETURNS,
    SLEEPS,
    Command,
    Kind,
    Mixture,
    Worker,
)
from bench.workloads.workload import Plan, Workload
from tests.unit.bench.fakes import FakeWakeq, Wire
from wakeq.protocol.wire.worker.codec import Ack, Fet, Islp, Nack, Pub, Sub, Touch, decode

TINY = Plan(seconds=0.2, scale=0.001)
MIXTURES = {
    "fetches": FETCHES, "publishes": PUBLISHES, "follow-ups": FOLLOW_UPS, "returns": RETURNS, "sleeps": SLEEPS,
    "random": RANDOM,
}  # fmt: skip
STRUCTS = {
    Kind.SUB: Sub, Kind.FET: Fet, Kind.ISLP: Islp, Kind.TOUCH: Touch, Kind.NACK: Nack, Kind.ACK: Ack, Kind.PUB: Pub,
}  # fmt: skip

each_mixture = pytest.mark.parametrize("mixture", MIXTURES.values(), ids=MIXTURES.keys())


def worker(seed: str = "1", messages: int = 64) -> Worker:
    made = Worker("here", "there", seed)
    made.hand.extend((b"uid-%d" % number, b'"1-%d"' % number) for number in range(messages))
    return made


def wave(mixture: Mixture, *, is_sorted: bool, seed: str = "1") -> list[Command]:
    return mixture.wave(worker(seed), is_sorted=is_sorted)


@each_mixture
def test_sorted_wave_has_the_commands_of_the_one_in_turns(mixture: Mixture) -> None:
    in_turns, in_order = (wave(mixture, is_sorted=is_sorted) for is_sorted in (False, True))

    assert Counter(command.line for command in in_turns) == Counter(command.line for command in in_order)
    assert len(in_turns) == mixtures.WINDOW
    assert [command.kind for command in in_order] == sorted(command.kind for command in in_turns)


@each_mixture
def test_wave_in_turns_changes_its_kind_more_often_than_the_sorted_one(mixture: Mixture) -> None:
    def changes(commands: list[Command]) -> int:
        return sum(before.kind != after.kind for before, after in pairwise(commands))

    kinds = len({command.kind for command in wave(mixture, is_sorted=False)})

    assert changes(wave(mixture, is_sorted=True)) == kinds - 1
    assert kinds == 1 or changes(wave(mixture, is_sorted=False)) > 2 * kinds


@each_mixture
def test_every_command_is_one_that_the_broker_knows(mixture: Mixture) -> None:
    commands = wave(mixture, is_sorted=False)

    decoded = decode(b"".join(command.line for command in commands))

    assert [type(command) for command in decoded] == [STRUCTS[command.kind] for command in commands]


@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("mixture", [RETURNS, RANDOM], ids=["returns", "random"])
def test_message_with_an_ended_lease_gets_no_command(mixture: Mixture, is_sorted: bool) -> None:
    for seed in range(50):
        ended: set[str] = set()
        for command in wave(mixture, is_sorted=is_sorted, seed=str(seed)):
            uid = json.loads(command.line).get("uid")
            assert uid is None or uid not in ended
            if command.kind in (Kind.ACK, Kind.NACK):
                ended.add(uid)
        assert ended


def test_random_waves_are_those_of_their_seed() -> None:
    assert wave(RANDOM, is_sorted=False, seed="1 2") == wave(RANDOM, is_sorted=False, seed="1 2")
    assert wave(RANDOM, is_sorted=False, seed="1 2") != wave(RANDOM, is_sorted=False, seed="1 3")


def test_random_wave_with_nothing_in_hand_only_fetches() -> None:
    commands = RANDOM.wave(worker(messages=0), is_sorted=False)

    assert {command.kind for command in commands} == {Kind.FET}


def test_follow_up_goes_to_the_second_queue_in_the_acknowledgement() -> None:
    (command, *_) = wave(FOLLOW_UPS, is_sorted=False)

    assert json.loads(command.line) == {
        "cmd": "ACK", "qname": "here", "uid": "uid-0", "lease": "1-0",
        "publish": [{"qname": "there", "message": mixtures.BODY}],
    }  # fmt: skip


def test_wave_of_a_worker_whose_fetches_found_nothing_fails() -> None:
    with pytest.raises(PeerFailed, match="no message is in hand"):
        FETCHES.wave(worker(messages=31), is_sorted=False)


ANSWERS = (
    b'{"cmd":"msg","qname":"here","uid":"a1","error_count":0,"msg":"x","lease":"1-7"}\n'
    b'{"cmd":"awk","qname":"here"}\n'
    b'{"cmd":"nomsg","qname":"here"}\n'
)


def test_awk_is_no_answer_wherever_the_stream_is_cut() -> None:
    async def hand_after(cut: int, answers: int) -> list[tuple[bytes, bytes]]:
        made = worker(messages=0)
        made.connection_made(cast(asyncio.WriteTransport, Wire()))
        asked = asyncio.create_task(made.ask(b"", answers))
        await asyncio.sleep(0)
        made.data_received(ANSWERS[:cut])
        await asyncio.sleep(0)
        made.data_received(ANSWERS[cut:])
        await asyncio.wait_for(asked, 1)
        return list(made.hand)

    for cut in range(1, len(ANSWERS)):
        assert asyncio.run(hand_after(cut, 2)) == [(b"a1", b'"1-7"')]


def test_wave_of_a_sleeper_ends_with_its_awk_and_not_before() -> None:
    async def scenario() -> None:
        made = worker(messages=0)
        made.connection_made(cast(asyncio.WriteTransport, Wire()))
        asked = asyncio.create_task(made.ask(b"", 1, until_awoken=True))

        made.data_received(b'{"cmd":"ok","qname":"here","uid":"a1"}\n')
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.0)
        assert not asked.done()
        made.data_received(b'{"cmd":"awk","qname":"here"}\n')

        await asyncio.wait_for(asked, 1)

    asyncio.run(scenario())


@pytest.mark.parametrize("reply", [b'{"cmd":"nok","err":"STALE_LEASE"}\n', b""])
def test_refusal_or_a_lost_connection_ends_the_wave(reply: bytes) -> None:
    async def scenario() -> None:
        made = worker()
        made.connection_made(cast(asyncio.WriteTransport, Wire()))
        asked = asyncio.create_task(made.ask(b"", 64))
        await asyncio.sleep(0)

        made.data_received(reply) if reply else made.connection_lost(None)

        with pytest.raises(PeerFailed):
            await asyncio.wait_for(asked, 1)

    asyncio.run(scenario())


def test_slices_weigh_by_their_time_and_not_by_their_number() -> None:
    second = {"count": 100.0, "rate": 100.0, "server": 100.0, "generator": 0.0, "other": 0.0}
    three_seconds = {"count": 900.0, "rate": 300.0, "server": 20.0, "generator": 0.0, "other": 40.0}

    found = mixtures.together([second, three_seconds])

    assert found == {"count": 1000.0, "rate": 250.0, "server": 40.0, "generator": 0.0, "other": 30.0}


@pytest.mark.parametrize("workload", mixtures.WORKLOADS, ids=lambda workload: workload.name)
def test_tiny_run_gives_every_figure_of_its_table(
    workload: Workload, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def quiet_at_once(peer: Wakeq) -> None:
        """A fake does nothing behind its answers."""

    monkeypatch.setattr(mixtures, "until_quiet", quiet_at_once)

    figures = asyncio.run(run_cell(workload, FakeWakeq(tmp_path), TINY, tmp_path))

    assert {column.figure for column in workload.columns} <= figures.keys()
    assert figures["count"] > 0
