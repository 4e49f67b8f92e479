"""What a light process promises: order, one message at a time, a quiet end, small size."""

import tracemalloc
from typing import Any

import pytest

from tests.helpers.loops.recorder import Recorder
from wakeq.actors.runtime import Process, Runtime


class Idle(Process):
    def on_receive(self, message: Any) -> None:
        pass


class Witness(Recorder):
    """Writes down which of its hooks were run."""

    def on_start(self) -> None:
        self.got.append("start")

    def on_stop(self) -> None:
        self.got.append("stop")

    def on_failure(self, *error: Any) -> None:
        self.got.append(("failure", error[0], str(error[1])))


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


def test_mail_is_handled_in_the_order_of_telling(runtime: Runtime) -> None:
    process = runtime.spawn(Recorder)

    for i in range(1000):
        process.tell(i)
    runtime.run_until_idle()

    assert process.got == list(range(1000))


def test_mail_to_itself_comes_behind_the_mail_that_waits(runtime: Runtime) -> None:
    class Echo(Recorder):
        def on_receive(self, message: Any) -> None:
            self.got.append(message)
            if message == "first":
                self.tell("third")

    process = runtime.spawn(Echo)

    process.tell("first")
    process.tell("second")
    runtime.run_until_idle()

    assert process.got == ["first", "second", "third"]


def test_mail_is_not_handled_inside_of_tell(runtime: Runtime) -> None:
    process = runtime.spawn(Recorder)

    process.tell("later")

    assert process.got == []


def test_stop_comes_after_the_mail_before_it_and_drops_the_mail_behind_it(runtime: Runtime) -> None:
    process = runtime.spawn(Witness)

    process.tell(1)
    process.stop()
    process.tell(2)
    runtime.run_until_idle()

    assert process.got == ["start", 1, "stop"]
    assert not process.alive


def test_tell_to_a_stopped_process_is_dropped_in_silence(runtime: Runtime) -> None:
    process = runtime.spawn(Recorder)
    process.stop()
    runtime.run_until_idle()

    process.tell("late")
    process.stop()
    runtime.run_until_idle()

    assert process.got == []
    assert runtime.messages == 1  # the first stop only
    assert not process._mail


def test_exception_runs_on_failure_instead_of_on_stop(runtime: Runtime) -> None:
    process = runtime.spawn(Witness)

    process.tell(ValueError("bad"))
    runtime.run_until_idle()

    assert process.got == ["start", ("failure", ValueError, "bad")]
    assert not process.alive


def test_exception_ends_only_the_process_that_raised_it(runtime: Runtime) -> None:
    failing, other = runtime.spawn(Recorder), runtime.spawn(Recorder)

    failing.tell(ValueError("bad"))
    failing.tell("never")
    other.tell("mine")
    runtime.run_until_idle()

    assert failing.got == []
    assert other.got == ["mine"]
    assert other.alive


def test_process_that_fails_in_on_start_is_dead_when_spawn_returns(runtime: Runtime) -> None:
    class Stillborn(Recorder):
        def on_start(self) -> None:
            self.tell("to myself")
            raise OSError("no")

    process = runtime.spawn(Stillborn)
    runtime.run_until_idle()
    process.tell("late")
    runtime.run_until_idle()

    assert not process.alive
    assert process.got == []


def test_exception_in_on_stop_is_a_failure(runtime: Runtime) -> None:
    class Clumsy(Witness):
        def on_stop(self) -> None:
            raise OSError("cannot close")

    process = runtime.spawn(Clumsy)

    process.stop()
    runtime.run_until_idle()

    assert process.got == ["start", ("failure", OSError, "cannot close")]
    assert runtime.failures == 1


def test_failure_is_logged_with_its_traceback(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    process = runtime.spawn(Recorder)

    process.tell(ValueError("bad apple"))
    runtime.run_until_idle()

    assert "Recorder" in caplog.text
    assert "bad apple" in caplog.text


def test_process_class_without_on_receive_is_refused(runtime: Runtime) -> None:
    with pytest.raises(TypeError, match="on_receive"):
        runtime.spawn(Process)


def test_process_is_made_by_spawn_only() -> None:
    with pytest.raises(TypeError, match="spawn"):
        Recorder()
    with pytest.raises(TypeError, match=r"runtime\.start"):
        Recorder.start()


def test_error_of_a_constructor_is_raised_to_the_caller_of_spawn(runtime: Runtime) -> None:
    class Picky(Recorder):
        def __init__(self, size: int) -> None:
            super().__init__()
            raise ValueError(size)

    with pytest.raises(ValueError, match="7"):
        runtime.spawn(Picky, 7)


def test_idle_process_is_small(runtime: Runtime) -> None:
    kept: list[Process | None] = [None] * 2000
    for i in range(100):  # the class's shared keys and the like
        kept[i] = runtime.spawn(Idle)

    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for i in range(1000, 2000):
        kept[i] = runtime.spawn(Idle)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert used / 1000 <= 120


def test_process_is_as_small_after_its_mail_as_before(runtime: Runtime) -> None:
    processes = [runtime.spawn(Idle) for _ in range(500)]

    for process in processes:
        process.tell("mail")
    runtime.run_until_idle()

    assert all(process._mail is None for process in processes)
