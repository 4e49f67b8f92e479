"""The benchmark measures what it says: tables, bars and flow, then tiny runs against live servers."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from bench.bars import BARS, Bar, Verdict, judge
from bench.counting.calls import summary as calls_told
from bench.counting.profile import summary
from bench.load.flow import Flow
from bench.peers import PEERS, Peer
from bench.peers.beanstalkd import BeanstalkConsumer, ToyGroup
from bench.peers.redis import RedisConsumer
from bench.peers.wakeq import WakeqConsumer
from bench.report import section, table
from bench.runner import disk_warnings, run_cell
from bench.workloads import WORKLOADS
from bench.workloads.workload import Plan
from tests.unit.bench.fakes import FakeWakeq, Wire

TINY = Plan(seconds=0.2, scale=0.001)


# Tables and bars ----------------------------------------------------------------------------------------


def test_table_aligns_words_left_and_numbers_right() -> None:
    text = table(["peer", "rate"], [["a", "1,234"], ["longer", "-"]])

    assert text.splitlines() == [
        "| peer   |  rate |",
        "|--------|------:|",
        "| a      | 1,234 |",
        "| longer |     - |",
    ]


def test_section_shows_ratios_to_the_yardstick_and_the_verdict_on_each_bar() -> None:
    cells = {"wakeq": [{"rate": 60.0, "per_cpu": 90.0}], "toy-group": [{"rate": 100.0, "per_cpu": 100.0}]}

    text = section(WORKLOADS["W1"], cells, rounds=1)

    assert "x toy-group: messages/s" in text
    assert [line.split("|")[-2].strip() for line in text.splitlines() if "times toy-group" in line] == [
        "met",
        "met",
        "not reached (an aim)",
        "met",
    ]
    assert "not measured" in text  # the peers that were not there


def test_ratio_is_made_within_each_round_and_a_failed_round_keeps_its_place() -> None:
    ours: list[dict[str, float]] = [{"rate": 10.0}, {"rate": 50.0}, {"rate": 30.0}]
    theirs: list[dict[str, float]] = [{"rate": 10.0}, {}, {"rate": 10.0}]

    reached, verdict = judge(Bar("W1", "rate", "", 2.5, against="other"), {"wakeq": ours, "other": theirs})

    assert reached == 2.0
    assert verdict is Verdict.MISSED


@pytest.mark.parametrize(("reached", "aim", "verdict"), [
    (50.0, False, Verdict.MET), (50.1, False, Verdict.MISSED), (50.1, True, Verdict.AIM_MISSED),
])  # fmt: skip
def test_upper_bar_is_met_at_its_value_and_a_missed_aim_is_no_failure(
    reached: float, aim: bool, verdict: Verdict
) -> None:
    bar = Bar("W5", "stall_ms", "", 50, at_most=True, aim=aim)

    assert judge(bar, {"wakeq": [{"stall_ms": reached}]})[1] is verdict


def test_memory_is_not_taken_for_a_disk() -> None:
    assert "fiction" in disk_warnings(Path("somewhere"), "tmpfs")[0]
    assert disk_warnings(Path("somewhere"), "ext4") == []


def test_calls_are_told_by_file_for_each_of_what_was_done() -> None:
    calls = {
        ("/src/wakeq/wakeq/actors/queue.py", "on_receive"): 20,
        ("/src/wakeq/wakeq/actors/queue.py", "rare"): 1,
        ("/lib/asyncio/tasks.py", "sleep"): 5,
        ("", "len"): 30,
        ("/src/wakeq/wakeq/node.py", "beat"): 0,
    }

    told = calls_told(calls, 10).splitlines()

    assert told[0] == "for each of 10: 2.6 calls of Python, 3.0 of C"
    assert told[4:] == ["| actors/queue.py |  2.10 |", "| elsewhere       |  0.50 |"]


def test_profile_counts_the_last_frame_of_each_stack() -> None:
    raw = "thread (0x1): loop;outer (a.py:1);inner (a.py:2) 30\nthread (0x1): loop;outer (a.py:1) 10\n"

    lines = summary(raw, {"rate": 1.0}).splitlines()

    assert [line.split("|")[1:4] for line in lines[4:]] == [
        [" inner (a.py:2)          ", " loop   ", " 75.0 "],
        [" outer (a.py:1)          ", " loop   ", " 25.0 "],
    ]


# Flow -----------------------------------------------------------------------------------------------------


def test_flow_grants_no_more_than_the_backlog_allows_and_resumes_when_it_shrinks() -> None:
    async def scenario() -> None:
        flow, resumed = Flow(count=1_000, backlog_max=600), []
        assert flow.grant(900) == 600
        assert flow.grant(1) == 0

        flow.resume_later(lambda: resumed.append(flow.grant(900)))
        flow.finish(499)
        assert resumed == []
        flow.finish(1)

        assert resumed == [400]
        flow.confirm(1_000)
        flow.finish(500)
        assert flow.grant(1) == 0
        await asyncio.wait_for(flow.all_confirmed(), 1)
        await asyncio.wait_for(flow.all_finished(), 1)

    asyncio.run(scenario())


def test_waiting_for_a_flow_fails_when_a_connection_breaks() -> None:
    async def scenario() -> None:
        flow = Flow(seconds=60)
        flow.grant(10)
        waiting = asyncio.create_task(flow.all_confirmed())
        await asyncio.sleep(0)

        flow.fail(ConnectionError("gone"))

        with pytest.raises(ConnectionError):
            await asyncio.wait_for(waiting, 1)

    asyncio.run(scenario())


def test_flow_that_closes_after_its_last_answer_still_ends() -> None:
    async def scenario() -> None:
        flow = Flow(count=10)
        waiting = asyncio.create_task(flow.all_finished())
        flow.grant(10)
        flow.confirm(10)
        flow.finish(10)
        await asyncio.sleep(0)

        assert flow.grant(1) == 0

        await asyncio.wait_for(waiting, 1)

    asyncio.run(scenario())


def test_balanced_flow_holds_consumers_back_until_the_first_publish() -> None:
    async def scenario() -> None:
        flow, resumed = Flow(count=10, balanced=True), []
        assert not flow.may_fetch(lambda: resumed.append("fetch"))

        flow.confirm(1)

        assert resumed == ["fetch"]
        assert flow.may_fetch(lambda: None)

    asyncio.run(scenario())


# Clients --------------------------------------------------------------------------------------------------


JSON_STREAM = (
    b'{"cmd":"okack","uid":"old","qname":"bench"}\n'
    b'{"cmd":"msgs","qname":"bench","messages":[{"uid":"a1","msg":"x","error_count":0,"lease":"1-7"},'
    b'{"uid":"a2","msg":"x","error_count":0,"lease":"1-8"}],"cmd_id":1}\n'
)


def test_json_messages_are_acknowledged_once_at_any_cut_of_the_stream() -> None:
    async def requests(cut: int) -> list[bytes]:
        wire, flow = Wire(), Flow(count=9)
        consumer = WakeqConsumer(flow, 64)
        consumer.connection_made(cast(asyncio.WriteTransport, wire))
        consumer.begin()
        wire.sent = b""
        for part in (JSON_STREAM[:cut], JSON_STREAM[cut:]):
            consumer.data_received(part)
        assert flow.finished == 1
        return wire.sent.splitlines()

    for cut in range(1, len(JSON_STREAM)):
        *acks, fetch = asyncio.run(requests(cut))

        assert b'"FET"' in fetch
        assert acks == [
            b'{"cmd":"ACK","qname":"bench","uid":"a1","lease":"1-7"}',
            b'{"cmd":"ACK","qname":"bench","uid":"a2","lease":"1-8"}',
        ]


@pytest.mark.parametrize(("consumer_class", "stream"), [
    (BeanstalkConsumer, b"RESERVED 12 2\r\nxx\r\nDELETED\r\nTIMED_OUT\r\n"),
    (RedisConsumer, b"$14\r\n000000000012xx\r\n:1\r\n$-1\r\n"),
])  # fmt: skip
def test_polled_answers_are_told_apart_wherever_the_stream_is_cut(
    consumer_class: type[BeanstalkConsumer] | type[RedisConsumer], stream: bytes
) -> None:
    async def parsed(cut: int) -> list[int]:
        consumer = consumer_class(Flow(count=1), 64)
        found = [consumer.parse(part) for part in (stream[:cut], stream[cut:])]
        return [sum(len(handles) for handles, _, _ in found), sum(found[0][1:]) + sum(found[1][1:])]

    for cut in range(1, len(stream)):
        assert asyncio.run(parsed(cut)) == [1, 2]


# Live -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workload", "peer_class"), [
    ("W1", ToyGroup), ("W1", FakeWakeq), ("W2B", FakeWakeq), ("W4", FakeWakeq), ("W4B", FakeWakeq),
])  # fmt: skip
def test_tiny_run_gives_every_figure_of_its_table(workload: str, peer_class: type[Peer], tmp_path: Path) -> None:
    figures = asyncio.run(run_cell(WORKLOADS[workload], peer_class(tmp_path), TINY, tmp_path))

    wanted = {column.figure for column in WORKLOADS[workload].columns} - {"per_cpu"}  # too short for the clock's tick
    assert wanted <= figures.keys()
    assert figures["count"] > 0


def test_every_bar_and_workload_names_peers_that_exist() -> None:
    assert {name for workload in WORKLOADS.values() for name in workload.peers} <= PEERS.keys()
    assert {bar.against for bar in BARS if bar.against} <= PEERS.keys()
    assert {bar.workload for bar in BARS} <= WORKLOADS.keys()
