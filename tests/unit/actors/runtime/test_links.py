"""What a monitor promises: one Down for each watcher, whatever the end was, and nothing left behind."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.loops.recorder import Recorder
from wakeq.actors.runtime import Down, NoSuchProcess, Runtime


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


def test_crash_drops_the_mail_and_tells_each_watcher_once(runtime: Runtime) -> None:
    target = runtime.spawn(Recorder)
    watchers = [runtime.spawn(Recorder) for _ in range(3)]
    error = ValueError("bad")
    for watcher in watchers:
        runtime.monitor(watcher, target, tag="t")
        runtime.monitor(watcher, target, tag="again")

    target.tell("handled")
    target.tell(error)
    target.tell("dropped")
    target.tell(ValueError("never raised"))
    target.stop()
    runtime.run_until_idle()

    assert target.got == ["handled"]
    for watcher in watchers:
        assert watcher.got == [Down(target, error, "again")]


def test_normal_stop_has_no_reason(runtime: Runtime) -> None:
    watcher, target = runtime.spawn(Recorder), runtime.spawn(Recorder)
    runtime.monitor(watcher, target)

    target.stop()
    runtime.run_until_idle()

    assert watcher.got == [Down(target, None, None)]


def test_monitor_of_a_dead_process_reports_its_end_at_once(runtime: Runtime) -> None:
    watcher, target = runtime.spawn(Recorder), runtime.spawn(Recorder)
    target.stop()
    runtime.run_until_idle()

    runtime.monitor(watcher, target, tag=7)
    runtime.run_until_idle()

    (down,) = watcher.got
    assert down.process is target
    assert isinstance(down.reason, NoSuchProcess)
    assert down.tag == 7


def test_monitor_taken_back_tells_nothing(runtime: Runtime) -> None:
    watcher, target = runtime.spawn(Recorder), runtime.spawn(Recorder)
    runtime.monitor(watcher, target)

    runtime.demonitor(watcher, target)
    runtime.demonitor(watcher, target)
    target.stop()
    runtime.run_until_idle()

    assert watcher.got == []


def test_down_comes_behind_the_last_mail_of_the_process(runtime: Runtime) -> None:
    class Talker(Recorder):
        def on_receive(self, message: Any) -> None:
            watcher.tell("last words")
            raise ValueError("and out")

    watcher = runtime.spawn(Recorder)
    target = runtime.spawn(Talker)
    runtime.monitor(watcher, target)

    target.tell("go")
    runtime.run_until_idle()

    assert watcher.got[0] == "last words"
    assert isinstance(watcher.got[1], Down)


def test_failure_of_one_that_watches_leaves_nothing_behind(runtime: Runtime) -> None:
    watcher, target = runtime.spawn(Recorder), runtime.spawn(Recorder)
    runtime.monitor(watcher, target)
    runtime.monitor(watcher, watcher)

    watcher.tell(ValueError("bad"))
    runtime.run_until_idle()

    assert len(runtime.links) == 0
    assert runtime.links._targets == {}


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["monitor", "demonitor", "stop", "crash"]), st.integers(0, 4), st.integers(0, 4)),
        max_size=30,
    )
)
def test_monitors_in_any_order_report_each_end_that_is_due(steps: list[tuple[str, int, int]]) -> None:
    runtime = Runtime()
    nodes = [runtime.spawn(Recorder) for _ in range(5)]
    pairs: set[tuple[int, int]] = set()
    due: dict[int, list[int]] = {i: [] for i in range(5)}
    dead: set[int] = set()

    for step, a, b in steps:
        if step == "monitor":
            runtime.monitor(nodes[a], nodes[b])
            if a not in dead:
                due[a] += [b] if b in dead else []
                pairs |= set() if b in dead else {(a, b)}
        elif step == "demonitor":
            runtime.demonitor(nodes[a], nodes[b])
            pairs.discard((a, b))
        elif b not in dead:
            nodes[b].tell(ValueError("bad")) if step == "crash" else nodes[b].stop()
            runtime.run_until_idle()
            dead.add(b)
            for watcher, target in sorted(pairs):
                if target == b and watcher != b:
                    due[watcher].append(b)
            pairs = {pair for pair in pairs if b not in pair}
        runtime.run_until_idle()

    for i, node in enumerate(nodes):
        assert [nodes.index(down.process) for down in node.got] == due[i]
    assert len(runtime.links) == len(pairs)
    kept = {(a, b) for a, targets in runtime.links._targets.items() for b in targets}
    assert kept == {(nodes[a], nodes[b]) for a, b in pairs}
    assert all(runtime.links._targets.values())
    assert all(runtime.links._watchers.values())
