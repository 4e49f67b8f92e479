"""How the runtime names its processes, and that two runtimes know nothing of each other."""

import pytest

from tests.helpers.loops.recorder import Recorder
from wakeq.actors.runtime import NameTaken, Runtime


def test_name_finds_its_process_until_it_ends() -> None:
    runtime = Runtime()
    process = runtime.spawn(Recorder)
    runtime.register("log", process)
    runtime.register(("queue", "mail"), process)
    found = runtime.whereis("log")

    process.stop()
    runtime.run_until_idle()

    assert found is process
    assert runtime.whereis("log") is None
    assert runtime.whereis(("queue", "mail")) is None
    runtime.register("log", runtime.spawn(Recorder))


def test_name_belongs_to_one_living_process() -> None:
    runtime = Runtime()
    first, second = runtime.spawn(Recorder), runtime.spawn(Recorder)
    runtime.register("log", first)
    runtime.register("log", first)

    with pytest.raises(NameTaken, match="log"):
        runtime.register("log", second)


def test_dead_process_gets_no_name() -> None:
    runtime = Runtime()
    process = runtime.spawn(Recorder)
    process.stop()
    runtime.run_until_idle()

    runtime.register("log", process)

    assert runtime.whereis("log") is None


def test_runtimes_do_not_disturb_each_other() -> None:
    one, two = Runtime(), Runtime()
    mine, yours = one.spawn(Recorder), two.spawn(Recorder)
    one.register("log", mine)
    one.groups.join("all", mine)

    mine.tell(1)
    yours.tell(2)
    one.run_until_idle()
    seen = (list(mine.got), list(yours.got))
    two.run_until_idle()

    assert seen == ([1], [])
    assert yours.got == [2]
    assert two.whereis("log") is None
    assert two.groups.count("all") == 0


def test_process_made_by_another_belongs_to_the_same_runtime() -> None:
    class Parent(Recorder):
        def __init__(self) -> None:
            super().__init__()
            self.child = self.runtime.spawn(Recorder)

    runtime, _other = Runtime(), Runtime()

    parent = runtime.spawn(Parent)

    assert parent.child.runtime is parent.runtime is runtime
