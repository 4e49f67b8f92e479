"""The checker is itself checked: every broken promise is caught by its rule, and correct runs are never flagged."""

from collections import Counter
from pathlib import Path

import pytest

from tests.helpers.histories.by_hand import Run, Writer
from tests.helpers.histories.checker import check
from tests.helpers.histories.deliveries import OF_DELIVERIES
from tests.helpers.histories.good import good_history
from tests.helpers.histories.history import Event, load_events
from tests.helpers.histories.messages import OF_MESSAGES

GOOD_HISTORIES = 10_000
BAD = [*OF_MESSAGES.broken, *OF_DELIVERIES.broken]
GOOD = OF_DELIVERIES.whole


@pytest.mark.parametrize(("rule", "write"), [pytest.param(rule, write, id=name) for rule, name, write in BAD])
def test_broken_promise_is_caught_by_its_rule(rule: str, write: Writer) -> None:
    run = Run()

    write(run)

    report = run.report()
    assert rule in report.rules, report.explain()


@pytest.mark.parametrize("write", [pytest.param(write, id=name) for name, write in GOOD])
def test_odd_but_correct_history_is_not_flagged(write: Writer) -> None:
    run = Run()

    write(run)

    report = run.report()
    assert not report.violations, report.explain()


def test_bad_histories_are_at_least_forty_and_cover_every_rule() -> None:
    caught = Counter(rule for rule, _, _ in BAD)

    assert sum(caught.values()) >= 40
    assert set(caught) == {f"Q{number}" for number in range(1, 12)}


@pytest.mark.long
def test_correct_runs_by_thousands_are_not_flagged() -> None:
    seen: Counter[str] = Counter()

    for seed in range(GOOD_HISTORIES):
        report = check(good_history(seed))
        assert not report.violations, f"seed {seed}: {report.explain()}"
        seen.update(report.seen)

    rare = ("redeliveries", "dead_letters", "publishes_unknown", "nacks_ok", "touches_ok")
    assert all(seen[name] >= 100 for name in rare), seen  # a model that makes nothing odd proves nothing


def test_task_that_vanishes_from_a_correct_run_is_missed() -> None:
    missed = 0
    for seed in range(200):
        events = good_history(seed)
        task = next((event.task for event in events if event.phase == "ok" and event.kind == "ack"), "")
        ops = {event.op for event in events if event.task == task and event.kind != "publish"}
        rest = [event for event in events if not (event.task == task and event.kind != "publish")]
        report = check([event for event in rest if event.kind == "deliver" or event.op not in ops])
        missed += bool(task) and any(violation.task == task for violation in report.violations)

    assert missed >= 150  # the others had an expiry, or a publish that nobody knows of


def test_saved_history_reads_back_the_same(tmp_path: Path) -> None:
    run = Run()
    run.publish("a", priority=-20, batch=3)
    run.deliver("a")

    run.history.save(tmp_path / "history.jsonl")

    events: list[Event] = load_events(tmp_path / "history.jsonl")
    assert events == run.history.events
