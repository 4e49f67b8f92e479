"""Exposition: the content of /metrics, its format, and its cost with ten thousand queues."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.helpers.brokers.node_here import NodeHere, client_of, node_here, run
from tests.helpers.steps import steps
from wakeq.actors.log.histogram import Histogram
from wakeq.http.api.streaming import write_in_time
from wakeq.http.exposition import PIECE_QUEUES, Totals, queue_pieces
from wakeq.http.families import FAMILIES, HISTOGRAM
from wakeq.protocol.queue.timings import BOUNDS_MS, Timings
from wakeq.protocol.queue.view import Gauges


async def scraped(here: NodeHere) -> dict[str, dict[tuple[str, ...], float]]:
    """Return every sample by name and labels, as Prometheus reads them."""
    status, text = await here.get("/metrics")
    assert status == 200
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def test_exported_metrics_are_exactly_those_of_the_table(tmp_path: Path) -> None:
    async def story() -> dict[str, dict[tuple[str, ...], float]]:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.publish("jobs", b"1")
            await (await client.fetch_many("jobs", 1))[0].release()
            return await scraped(here)

    found = run(story())

    suffixes = ("_bucket", "_sum", "_count")
    expected = {n for n, f in FAMILIES.items() if f.kind != HISTOGRAM and "_peer_" not in n}
    expected |= {n + s for n, f in FAMILIES.items() if f.kind == HISTOGRAM for s in suffixes}
    assert found.keys() == expected


def test_metrics_have_the_values_of_the_queues(tmp_path: Path) -> None:
    async def story() -> dict[str, dict[tuple[str, ...], float]]:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.publish_many("jobs", [b"1", b"2", b"3"])
            await client.publish("jobs", b"later", delay=60)
            await client.publish("", b"default")
            await client.publish('odd"\\', b"1")
            (message,) = await client.fetch_many("jobs", 1)
            await message.ack()
            await client.fetch_many("jobs", 1)
            await here.call("POST", "/queue/pause", queue="jobs")
            return await scraped(here)

    found = run(story())

    assert found["wakeq_queue_messages"][("jobs", "ready")] == 1
    assert found["wakeq_queue_messages"][("jobs", "delayed")] == 1
    assert found["wakeq_queue_messages"][("jobs", "leased")] == 1
    assert found["wakeq_queue_messages"][('odd"\\', "ready")] == 1
    assert found["wakeq_queue_messages"][("default queue", "ready")] == 1
    assert found["wakeq_queue_delivered_total"][("jobs",)] == 2
    assert found["wakeq_queue_acked_total"][("jobs",)] == 1
    assert found["wakeq_queue_paused"] == {("jobs",): 1, ("default queue",): 0, ('odd"\\',): 0}
    assert 0 <= found["wakeq_queue_oldest_ready_age_seconds"][("jobs",)] < 60
    assert found["wakeq_published_total"][()] == 6
    for name in ("wakeq_queue_wait_seconds_bucket", "wakeq_queue_work_seconds_bucket"):
        expected = 2 if "wait" in name else 1
        assert {labels: count for labels, count in found[name].items() if "+Inf" in labels} == {
            ("jobs", "+Inf"): expected
        }
        assert found[name][("jobs", "60")] == found[name.replace("_queue", "")][("60",)] == expected
    assert found["wakeq_queue_wait_seconds_count"][("jobs",)] == found["wakeq_wait_seconds_count"][()] == 2
    assert 0 <= found["wakeq_queue_wait_seconds_sum"][("jobs",)] < 60
    assert found["wakeq_messages"][("delayed",)] == 1
    assert found["wakeq_connections"][("worker",)] == 1
    assert found["wakeq_entries_set_aside"][()] == 0
    assert found["wakeq_raft_is_leader"][()] == found["wakeq_raft_serves"][()] == 1


def test_age_of_the_oldest_ready_message_survives_a_restart(tmp_path: Path) -> None:
    name = "wakeq_queue_oldest_ready_age_seconds"

    async def first() -> None:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.publish("jobs", b"1")

    async def second() -> list[dict[tuple[str, ...], float]]:
        async with node_here(tmp_path / "data") as here:
            looks = []
            while not looks or ("jobs",) not in looks[-1]:
                looks.append((await scraped(here))[name])
            return looks

    run(first())
    looks = run(second())

    assert looks[0] == {("default queue",): 0}, "nobody has read it yet"
    assert looks[-1][("jobs",)] > 0


def test_queues_beyond_the_limit_have_no_series_but_count_in_the_sums(tmp_path: Path) -> None:
    async def story() -> dict[str, dict[tuple[str, ...], float]]:
        from wakeq.config.settings import Metrics

        async with node_here(tmp_path / "data", metrics=Metrics(queues_max=2)) as here, client_of(here) as client:
            for name in ("a", "b", "c"):
                await client.publish(name, b"1")
            return await scraped(here)

    found = run(story())

    assert set(found["wakeq_queue_bytes"]) == {("default queue",), ("a",)}
    assert found["wakeq_queues_unlisted"][()] == 2
    assert found["wakeq_messages"][("ready",)] == found["wakeq_published_total"][()] == 3


def gauges(name: str, queue_id: int, published: int) -> Gauges:
    return Gauges(name, queue_id, *[0] * 9, None, False, published, *[0] * 7)


def test_sums_never_shrink_after_a_purge_or_delete() -> None:
    totals = Totals()
    sums = []

    for look in ([gauges("a", 1, 5), gauges("b", 2, 7)], [gauges("a", 9, 1)], [gauges("a", 9, 4)]):
        list(totals.add(look))
        sums.append({s.name: s.value for s in totals.samples(look, 0)}["wakeq_published_total"])

    assert sums == [12, 13, 16]


def test_age_is_omitted_while_it_is_unknown() -> None:
    known = gauges("known", 1, 0)._replace(ready=1, oldest_ready_ms=4_000)
    unknown, empty = gauges("unknown", 2, 0)._replace(ready=1), gauges("empty", 3, 0)

    text = "".join(queue_pieces([known, unknown, empty], 5_500, 9))

    ages = [line.partition("age_seconds")[2] for line in text.splitlines() if "age_seconds{" in line]
    assert ages == ['{queue="known"} 1.5', '{queue="empty"} 0']


def test_queue_that_gets_dead_letters_is_known_whatever_its_name(tmp_path: Path) -> None:
    async def story() -> dict[str, dict[tuple[str, ...], float]]:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.create_queue("jobs", dead_letter="hospital")
            for name in ("hospital", "jobs", "orphan.dead", "other"):
                await client.publish(name, b"1")
            return await scraped(here)

    found = run(story())

    assert found["wakeq_queue_is_dead_letter"] == {
        ("default queue",): 0, ("hospital",): 1, ("jobs",): 0, ("orphan.dead",): 1, ("other",): 0,
    }  # fmt: skip


def test_deliveries_that_failed_are_exported_by_reason(tmp_path: Path) -> None:
    async def story() -> dict[str, dict[tuple[str, ...], float]]:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.publish("jobs", b"1")
            (message,) = await client.fetch_many("jobs", 1)
            await message.reject("it is no job")
            return await scraped(here)

    found = run(story())

    by_reason = {reason: count for (_, reason), count in found["wakeq_queue_unacknowledged_total"].items()}
    assert by_reason == {"rejected": 1} | dict.fromkeys(("nack", "timeout", "disconnect", "returned", "exhausted"), 0)
    assert found["wakeq_unacknowledged_total"] == {(reason,): count for reason, count in by_reason.items()}


def test_queue_without_deliveries_has_no_timings() -> None:
    busy = Timings()
    busy.waits[3] = 2
    rows = [gauges("idle", 1, 0), gauges('odd"%d', 2, 0)._replace(timings=busy)]

    lines = [line for line in "".join(queue_pieces(rows, 0, 9)).splitlines() if line.startswith("wakeq_queue_wait_")]

    assert len(lines) == len(BOUNDS_MS) + 3
    assert all('queue="odd\\"%d"' in line for line in lines)
    assert [line.rpartition(" ")[2] for line in lines] == [*["0"] * 3, *["2"] * (len(BOUNDS_MS) - 2), "0.0", "2"]


def test_so_many_queues_with_deliveries_have_histograms_as_are_wanted() -> None:
    rows = [gauges("idle", 1, 0), *(gauges(name, 2, 0)._replace(timings=Timings()) for name in "abc")]

    text = "".join(queue_pieces(rows, 0, 2))

    assert [f'wait_seconds_count{{queue="{name}"}}' in text for name in ("idle", "a", "b", "c")] == [
        False, True, True, False,
    ]  # fmt: skip
    assert 'wakeq_queue_bytes{queue="c"}' in text


def test_histogram_buckets_are_cumulative() -> None:
    histogram = Histogram((1, 5))

    for value in (0.5, 1, 2, 9):
        histogram.observe(value)

    assert list(histogram.cumulative()) == [(1, 2), (5, 3), (float("inf"), 4)]
    assert (histogram.count, histogram.total) == (4, 12.5)


def test_export_of_many_queues_is_cut_into_bounded_pieces_of_few_steps() -> None:
    many = [gauges(f"queue-{number}", number, 1)._replace(timings=Timings()) for number in range(2 * PIECE_QUEUES + 1)]
    pieces: list[str] = []

    cost = steps(lambda: pieces.extend(queue_pieces(many, 0, len(many))))

    lines = sum(piece.count("\n") for piece in pieces)
    assert lines > 8 * len(many)
    assert max(piece.count("\n") for piece in pieces) <= 3 * PIECE_QUEUES, "of each queue three lines at most"
    assert cost < 5 * lines


def test_loop_serves_others_between_two_pieces_of_the_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns, turn_of_piece = 0, list[int]()

    async def counted(*of_piece: Any) -> None:
        turn_of_piece.append(turns)
        await write_in_time(*of_piece)

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def story() -> None:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.publish("jobs", b"1")
            counting = asyncio.create_task(count_turns())
            await here.get("/metrics")
            counting.cancel()

    monkeypatch.setattr("wakeq.http.health.write_in_time", counted)
    run(story())

    _of_node, *of_queues = turn_of_piece
    assert len(of_queues) > 2 * 8
    assert len(set(of_queues)) == len(of_queues)
