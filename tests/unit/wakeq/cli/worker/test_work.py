"""`wakeq work`: the environment of a command, the meaning of its exit status, the end of all its processes."""

import asyncio
import errno
import logging
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.clients.scripted import message as message_of
from wakeq.cli import main
from wakeq.cli.worker import command as command_module
from wakeq.cli.worker.command import (
    LINE_BYTES_MAX,
    LINE_CHARS_MAX,
    Command,
    Lines,
    Program,
    environment_of,
    judge,
)
from wakeq.cli.worker.work import RETRY_FLAGS, retry_of, work
from wakeq.client.message import Received
from wakeq.worker import Reject, Retry, Snooze, Worker
from wakeq.worker.outcome import RETRY
from wakeq.worker.pools.call import call_async
from wakeq.worker.task import Task


def judged(status: int, last_line: str = "", policy: Retry | None = None, deliveries: int = 1) -> Any:
    return judge(status, last_line, policy, deliveries=deliveries, drawn=0.0)


# Environment of a command ---------------------------------------------------------------------------------------


def environment_for(inherited: Mapping[str, str] | None = None, **fields: Any) -> dict[str, str]:
    return environment_of(message_of(**fields), inherited or {}, broker="here:1")


def test_command_gets_the_facts_of_its_message() -> None:
    environment = environment_for(uid="u7", lease="1-2", delivery=3, failures=2)

    assert environment == {
        "WAKEQ_BROKER": "here:1",
        "WAKEQ_QUEUE": "q",
        "WAKEQ_UID": "u7",
        "WAKEQ_LEASE": "1-2",
        "WAKEQ_DELIVERY": "3",
        "WAKEQ_FAILURES": "2",
    }


def test_headers_get_variable_names_valid_in_every_shell() -> None:
    environment = environment_for(headers={"x-content.type": "a", "grösse": "b", "nul": "a\0b"})

    assert environment["WAKEQ_HEADER_X_CONTENT_TYPE"] == "a"
    assert environment["WAKEQ_HEADER_GR_SSE"] == "b"
    assert environment["WAKEQ_HEADER_NUL"] == "ab"


def test_trace_headers_get_their_standard_variables() -> None:
    environment = environment_for(headers={"traceparent": "00-1-2-01", "tracestate": "a=b"})

    assert (environment["TRACEPARENT"], environment["TRACESTATE"]) == ("00-1-2-01", "a=b")


def test_command_gets_nothing_of_another_message() -> None:
    inherited = {"PATH": "/bin", "WAKEQ_HEADER_OLD": "1", "TRACEPARENT": "old", "TRACESTATE": "old", "WAKEQ_UID": "old"}

    environment = environment_for(inherited)

    assert environment["PATH"] == "/bin"
    assert not {"WAKEQ_HEADER_OLD", "TRACEPARENT", "TRACESTATE"} & environment.keys()
    assert environment["WAKEQ_UID"] == "u1"


# What its status means --------------------------------------------------------------------------------------------


def test_status_0_acknowledges() -> None:
    assert judged(0, "a warning") is None


def test_status_65_makes_a_dead_letter() -> None:
    ending = judged(os.EX_DATAERR, "no image")

    assert isinstance(ending, Reject)
    assert ending.reason == "no image (exit status 65)"


def test_status_75_retries_later_without_a_failure() -> None:
    endings = [judged(os.EX_TEMPFAIL, "busy", deliveries=delivery) for delivery in (1, 2, 5, 100)]

    assert all(isinstance(ending, Snooze) for ending in endings)
    assert [ending.seconds for ending in endings] == [1, 2, 16, 3600]


def test_status_75_waits_as_the_retry_policy_says() -> None:
    assert judged(os.EX_TEMPFAIL, policy=Retry(delay=7), deliveries=4).seconds == 7


@pytest.mark.parametrize(
    ("status", "last_line", "reason"),
    [(1, "boom", "boom (exit status 1)"), (3, "", "exit status 3"), (-9, "", "killed by SIGKILL")],
)
def test_unlisted_exit_status_is_a_failure_with_the_last_line_as_its_reason(
    status: int, last_line: str, reason: str
) -> None:
    ending = judged(status, last_line)

    assert isinstance(ending, Retry)
    assert (ending.reason, ending.max, ending.delay) == (reason, None, None)


def test_long_last_line_leaves_room_for_the_status() -> None:
    ending = judged(1, "x" * 5000 + "the end")

    assert len(ending.reason) < LINE_CHARS_MAX + 30
    assert ending.reason.endswith("the end (exit status 1)")


def test_default_policy_equals_that_of_any_task() -> None:
    by_default = {flag.name: flag.default for flag in work.params if flag.name in RETRY_FLAGS}

    policy = retry_of(*(by_default[name] for name in RETRY_FLAGS))

    assert vars(policy) == vars(RETRY)


@pytest.mark.parametrize(("delay_s", "longest_s"), [(1.0, 3600), (7200.0, 7200)])
def test_flags_define_the_policy(delay_s: float, longest_s: int) -> None:
    policy = retry_of(100, delay_s, "exponential")

    assert (policy.max, policy.delay_after(90, drawn=0.0)) == (100, longest_s)


# Output of a command --------------------------------------------------------------------------------------------


@given(said=st.binary(max_size=60).map(lambda said: said.replace(b"\r", b"")), step=st.integers(1, 9))
def test_output_is_passed_on_completely_in_whole_lines(said: bytes, step: int) -> None:
    lines = Lines()

    pieces = [lines.receive(said[start : start + step]) for start in range(0, len(said), step)]
    rest = lines.finish()

    assert all(piece == b"" or piece.endswith(b"\n") for piece in [*pieces, rest])
    assert b"".join([*pieces, rest]) == (said if said.endswith(b"\n") or not said else said + b"\n")


@pytest.mark.parametrize(
    ("said", "last"),
    [
        (b"one\ntwo\n", "two"),
        (b"one\n\n  \n", "one"),
        (b"one\ntwo", "two"),
        (b"", ""),
        (b"\xff\n", "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_last_nonblank_line_is_remembered(said: bytes, last: str) -> None:
    lines = Lines()
    lines.receive(said)
    lines.finish()

    assert lines.last == last


def test_endless_line_is_passed_on_in_pieces() -> None:
    lines = Lines()

    assert lines.receive(b"x" * (LINE_BYTES_MAX + 1)) == b"x" * (LINE_BYTES_MAX + 1)


# Programs ---------------------------------------------------------------------------------------------------------


def run_shell(script: str, body: bytes = b"") -> tuple[int, str]:
    """Return the exit status and the last line of a shell script."""

    async def run() -> tuple[int, str]:
        program = Program(["sh", "-c", script], body=body, environment=os.environ)
        try:
            return await program.wait(), program.last_line
        finally:
            await program.close()

    return asyncio.run(run())


def test_program_reads_the_body_and_its_output_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    ended = run_shell("cat; echo one >&2; printf two >&2; exit 4", b"\0body\xff")

    assert ended == (4, "two")
    assert capfd.readouterr() == ("\0body\ufffd", "one\ntwo\n")


def test_program_may_ignore_its_body() -> None:
    assert run_shell("exit 0", b"x" * 1_000_000) == (0, "")


def test_background_process_is_not_waited_for() -> None:
    status, pid = run_shell("sleep 1000 & echo $! >&2")

    assert status == 0
    assert lives(pid)
    os.kill(int(pid), signal.SIGKILL)


def test_ended_program_takes_its_processes_along(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sh -c 'trap \"\" TERM; echo $$ >> {pids}; while :; do sleep 0.05; done' & echo $$ >> {pids}; sleep 60"

    async def run() -> None:
        program = Program(["sh", "-c", script], body=b"", environment=os.environ)
        async with asyncio.timeout(20):
            while not pids.exists() or len(pids.read_text().split()) < 2:
                await asyncio.sleep(0.01)
        await program.close()

    asyncio.run(run())

    # SIGKILL was sent; the kernel ends the processes at their next turn.
    deadline_s = time.monotonic() + 10
    while left := [pid for pid in pids.read_text().split() if lives(pid)]:
        assert time.monotonic() < deadline_s, f"{left} still live"
        time.sleep(0.005)


def lives(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_command_beyond_max_run_is_ended_before_its_release(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"echo $$ > {pid_file}; exec sleep 60"
    command = Command(["sh", "-c", script], broker="here:1", max_run_s=0.2, retry=None)

    with pytest.raises(Retry, match=r"ran for more than 0\.2 s"):
        asyncio.run(command.handle(message_of()))

    assert not lives(pid_file.read_text().strip())


@pytest.mark.parametrize(
    ("script", "cancels"), [("exec sleep 60", 1), ("trap '' TERM; while :; do sleep 0.05; done", 2)]
)
def test_cancelled_command_is_ended_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, cancels: int
) -> None:
    # Only the second cancellation ends a command that ignores SIGTERM.
    monkeypatch.setattr(command_module, "KILL_AFTER_S", 3600.0)
    pid_file = tmp_path / "pid"
    command = Command(["sh", "-c", f"echo $$ > {pid_file}; {script}"], broker="here:1", max_run_s=60, retry=None)

    async def run() -> bool:
        handling = asyncio.create_task(command.handle(message_of()))
        async with asyncio.timeout(20):
            while not (pid_file.exists() and pid_file.read_text()):
                await asyncio.sleep(0.01)
        for _ in range(cancels):
            handling.cancel()
            await asyncio.wait([handling], timeout=0.1)
        await asyncio.wait([handling], timeout=20)
        return handling.cancelled()

    assert asyncio.run(run())
    assert not lives(pid_file.read_text().strip())


def test_unrunnable_command_is_a_failure_with_a_reason(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("no word of who is to read this", encoding="utf-8")
    script.chmod(0o700)
    command = Command([str(script)], broker="here:1", max_run_s=60, retry=None)

    with pytest.raises(Retry, match="Exec format error"):
        asyncio.run(command.handle(message_of()))
    with pytest.raises(Retry, match="Argument list too long"):
        asyncio.run(command.handle(message_of(headers={"large": "x" * 1_000_000})))


@pytest.mark.parametrize(
    ("status", "logged"),
    [
        (1, [("WARNING", "q: u1 failed, will be retried in 7 s (delivery 1): exit status 1")]),
        (75, [("INFO", "q: u1 was postponed for 7 s (delivery 1): exit status 75")]),
        (65, [("WARNING", "q: u1 became a dead letter (delivery 1): exit status 65")]),
        (0, []),
    ],
)
def test_outcome_is_logged_as_a_warning_only_after_a_failure(
    caplog: pytest.LogCaptureFixture, status: int, logged: list[tuple[str, str]]
) -> None:
    retry = Retry(delay=7, jitter=0)
    command = Command(["sh", "-c", f"exit {status}"], broker="here:1", max_run_s=60, retry=retry)
    task: Task[..., Any] = Worker().task("q", retry=retry)(command.handle)
    message = Received(queue="q", uid="u1", body=b"", lease="1-7", delivery=1)
    caplog.set_level(logging.INFO, logger="wakeq")

    asyncio.run(call_async(task, message))

    assert [(record.levelname, record.message) for record in caplog.records] == logged


def test_program_that_cannot_be_watched_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def too_many(pid: int, _flags: int = 0) -> int:
        made.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", too_many)

    with pytest.raises(OSError, match="Too many open files"):
        run_shell("exec sleep 60")

    # Before that, asyncio may have tried the call on its own process.
    assert not lives(str(made[-1]))


# The command line -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("work q", "Missing argument '-- COMMAND...'"),
        ("work q -- no-such-command", "there is no command no-such-command;"),
        ("work q --timeout 1 -- true", "'--timeout'"),
        ("work q --retry-by-queue --retry-delay 3 -- true", "--retry-delay and --retry-by-queue contradict each other"),
    ],
)
def test_invalid_command_line_is_explained(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    assert said in capsys.readouterr().err


def test_unreachable_broker_ends_with_69(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--broker", "127.0.0.1:1", "work", "q", "--", "true"])

    assert ended.value.code == 69
    assert "no broker answers at 127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.parametrize(("passes_token", "expected"), [(False, "-- here"), (True, "secret /file here")])
def test_command_gets_the_worker_token_only_with_pass_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passes_token: bool, expected: str
) -> None:
    monkeypatch.setenv("WAKEQ_TOKEN", "secret")
    monkeypatch.setenv("WAKEQ_TOKEN_FILE", "/file")
    monkeypatch.setenv("WAKEQ_TLS", "here")
    said = tmp_path / "said"
    script = f"echo ${{WAKEQ_TOKEN--}}${{WAKEQ_TOKEN+ }}${{WAKEQ_TOKEN_FILE--}} $WAKEQ_TLS > {said}"
    command = Command(["sh", "-c", script], broker="here:1", max_run_s=60, retry=None, passes_token=passes_token)

    asyncio.run(command.handle(message_of()))

    assert said.read_text().strip() == expected
