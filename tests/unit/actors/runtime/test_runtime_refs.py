"""What the runtime promises to outsiders: refs reach its processes, and the registry has those that can be found."""

import gc
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pykka
import pytest

from tests.helpers.loops.recorder import Recorder, Steps
from wakeq.actors.runtime import Process, Runtime


class Counter(Process):
    """A process as an outsider may use it."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step
        self.count = 0

    def on_receive(self, message: Any) -> Any:
        return self.add(message)

    def add(self, times: int) -> int:
        self.count += times * self.step
        return self.count


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    made = Runtime()
    yield made
    made.close()


def in_thread(runtime: Runtime, work: Callable[[], Any]) -> Any:
    """Do it in another thread, while this one serves; return what came of it."""
    outcome: list[Any] = []
    thread = threading.Thread(target=lambda: outcome.append(work()))
    thread.start()
    while thread.is_alive():
        runtime.run_until_idle()
        thread.join(0.001)
    return outcome[0]


# Refs ----------------------------------------------------------------------------------------------------------------


def test_ref_reaches_the_same_mailbox(runtime: Runtime) -> None:
    process = runtime.spawn(Recorder)

    process.tell(1)
    process.actor_ref.tell(2)
    process.tell(3)
    runtime.run_until_idle()

    assert process.got == [1, 2, 3]
    assert process.actor_ref is process.actor_ref


def test_started_process_is_told_asked_and_stopped_by_another_thread(runtime: Runtime) -> None:
    ref = runtime.start(Counter, 10)

    def use() -> list[Any]:
        ref.tell(1)
        return [ref.ask(2, timeout=60), ref.stop(timeout=10), ref.is_alive(), ref.stop(timeout=10)]

    assert in_thread(runtime, use) == [30, True, False, False]


def test_proxy_calls_methods_and_reads_attributes_in_the_turn_of_the_process(runtime: Runtime) -> None:
    ref = runtime.start(Counter, 10)

    def use() -> list[Any]:
        proxy = ref.proxy()
        proxy.step = 2
        proxy.add.defer(5)
        return [proxy.add(1).get(timeout=60), proxy.count.get(timeout=10)]

    assert in_thread(runtime, use) == [12, 12]


def test_stop_without_waiting_comes_behind_the_mail_before_it(runtime: Runtime) -> None:
    ref = runtime.spawn(Recorder).actor_ref

    answer = ref.ask("hello", block=False)
    stopped = ref.stop(block=False)
    stopped_too = ref.stop(block=False)
    late = ref.ask("late", block=False)
    runtime.run_until_idle()

    assert answer.get() == "hello"
    assert stopped.get() is True
    assert stopped_too.get() is True
    with pytest.raises(pykka.ActorDeadError):
        late.get()
    assert not ref.is_alive()


def test_ref_made_after_the_end_knows_it(runtime: Runtime) -> None:
    process = runtime.spawn(Recorder)
    process.stop()
    runtime.run_until_idle()

    with pytest.raises(pykka.ActorDeadError):
        process.actor_ref.tell("late")
    assert runtime.refs == {}


def test_ref_of_a_process_that_ended_is_kept_by_nobody_but_those_who_have_it(runtime: Runtime) -> None:
    process = runtime.spawn(Recorder)
    ref = process.actor_ref
    kept = dict(runtime.refs)

    process.stop()
    runtime.run_until_idle()

    assert kept == {process: ref}
    assert runtime.refs == {}


# The registry --------------------------------------------------------------------------------------------------------


def test_started_process_is_found_by_its_class_until_it_ends(runtime: Runtime) -> None:
    ref = runtime.start(Counter, 1)
    found = pykka.ActorRegistry.get_by_class(Counter)
    found_by_urn = pykka.ActorRegistry.get_by_urn(ref.actor_urn)

    ref.stop(block=False)
    runtime.run_until_idle()

    assert found == [ref]
    assert found_by_urn is ref
    assert pykka.ActorRegistry.get_by_class(Counter) == []


def test_process_that_fails_in_on_start_is_never_registered(runtime: Runtime) -> None:
    class Stillborn(Recorder):
        def on_start(self) -> None:
            raise OSError("no")

    ref = runtime.start(Stillborn)

    assert not ref.is_alive()
    assert pykka.ActorRegistry.get_by_class(Stillborn) == []


def test_spawned_process_is_not_registered_and_makes_no_ref_of_its_own(runtime: Runtime) -> None:
    before = pykka.ActorRegistry.get_all()

    process = runtime.spawn(Recorder)
    process.tell("mail")
    process.stop()
    runtime.run_until_idle()

    assert pykka.ActorRegistry.get_all() == before
    assert not {"actor_urn", "actor_ref", "actor_stopped"} & process.__dict__.keys()


def test_end_of_thousands_does_not_search_the_registry(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[object] = []
    monkeypatch.setattr(pykka.ActorRegistry, "unregister", searched.append)

    for process in [runtime.spawn(Recorder) for _ in range(100)]:
        process.stop()
    runtime.run_until_idle()

    assert searched == []


# The end of a runtime ------------------------------------------------------------------------------------------------


def test_closed_runtime_refuses_those_who_ask_and_leaves_nothing_in_the_registry() -> None:
    steps = Steps()
    runtime = Runtime(steps, steps)
    ref, busy = runtime.start(Counter, 1), runtime.start(Counter, 1)
    waiting = busy.ask(1, block=False)
    foreign: list[Any] = []
    teller = threading.Thread(target=lambda: foreign.append(ref.ask(1, block=False)))
    teller.start()
    teller.join()

    runtime.close()

    for future in (waiting, foreign[0], ref.ask(1, block=False)):
        with pytest.raises(pykka.ActorDeadError):
            future.get()
    assert pykka.ActorRegistry.get_by_class(Counter) == []
    assert not busy.is_alive()


def test_runtime_that_is_closed_within_a_turn_serves_nobody_any_more(runtime: Runtime) -> None:
    class Closes(Recorder):
        def on_receive(self, message: Any) -> None:
            super().on_receive(message)
            self.runtime.close()

    closes, other = runtime.spawn(Closes), runtime.spawn(Recorder)
    for message in (1, 2, 3):
        closes.actor_ref.tell(message)
    waiting = other.actor_ref.ask("never", block=False)
    runtime.run_until_idle()

    assert (closes.got, other.got, runtime.failures) == ([1], [], 0)
    with pytest.raises(pykka.ActorDeadError):
        waiting.get()


def test_thread_that_asks_while_the_runtime_closes_is_refused(runtime: Runtime) -> None:
    ref = runtime.spawn(Recorder).actor_ref
    runtime.close()
    ref.actor_stopped.clear()  # as it was when the thread looked
    heard: list[str] = []

    def ask() -> None:
        with pytest.raises(pykka.ActorDeadError):
            ref.ask("late", timeout=1)
        heard.append("refused")

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()

    assert heard == ["refused"]


def test_closed_runtime_is_not_kept_by_its_refs() -> None:
    def leave_one() -> None:
        runtime = Runtime()
        runtime.start(Recorder, [bytes(100_000)])
        runtime.close()

    tracemalloc.start()
    for _ in range(20):
        leave_one()
    gc.collect()
    kept_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert kept_bytes < 200_000


# Two runtimes --------------------------------------------------------------------------------------------------------


def test_runtimes_do_not_disturb_each_other() -> None:
    one, two = Runtime(), Runtime()
    mine, yours = one.spawn(Recorder), two.spawn(Recorder)
    one.groups.join("all", mine)

    mine.tell(1)
    yours.tell(2)
    one.run_until_idle()
    seen = (list(mine.got), list(yours.got))
    two.run_until_idle()

    assert seen == ([1], [])
    assert yours.got == [2]
    assert two.groups.count("all") == 0


def test_process_made_by_another_belongs_to_the_same_runtime() -> None:
    class Parent(Recorder):
        def __init__(self) -> None:
            super().__init__()
            self.child = self.runtime.spawn(Recorder)

    runtime, _other = Runtime(), Runtime()

    parent = runtime.spawn(Parent)

    assert parent.child.runtime is parent.runtime is runtime
