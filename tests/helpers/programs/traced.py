"""Faults in the system calls of a running broker, by strace.

    pid, injection --> strace attached --> detached at the end of the block

It changes only the process that it is given, and only while the block runs.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ATTACH_TIMEOUT_S = 10.0
SYNCS = "fdatasync,fsync,msync,sync_file_range"


def unavailable_reason() -> str:
    """Return why system calls cannot be made to fail here, or nothing if they can."""
    if shutil.which("strace") is None:
        return "a failing or slow disk needs strace, which is not installed"
    with subprocess.Popen(["sleep", "30"]) as process:
        try:
            with injected(process.pid, "fdatasync:error=EIO"):
                return ""
        except RuntimeError as error:
            return f"strace cannot attach to a process here: {error}"
        finally:
            process.kill()


@contextmanager
def injected(pid: int, inject: str, *, path: Path | None = None) -> Iterator[None]:
    """Let the named system calls of every thread of `pid` fail or be slow, `fdatasync:error=EIO` for instance.

    With `path` only calls that touch this file are meant.
    """
    calls = inject.partition(":")[0]
    command = [
        "strace",
        "-f",
        "-qq",
        "-p",
        str(pid),
        "-e",
        f"trace={calls}",
        "-e",
        f"inject={inject}",
        "-o",
        "/dev/null",
    ]
    if path is not None:
        command += ["-P", str(path)]
    with tempfile.TemporaryFile("w+") as said:
        tracer = subprocess.Popen(command, stderr=said, start_new_session=True)
        try:
            _wait_attached(pid, tracer, said.fileno())
            yield
        finally:
            tracer.send_signal(signal.SIGINT)  # strace detaches; SIGKILL would leave the process stopped
            try:
                tracer.wait(ATTACH_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                tracer.kill()
                tracer.wait()


def _wait_attached(pid: int, tracer: "subprocess.Popen[bytes]", said: int) -> None:
    deadline_s = time.monotonic() + ATTACH_TIMEOUT_S
    while time.monotonic() < deadline_s:
        if tracer.poll() is not None:
            raise RuntimeError(os.pread(said, 4096, 0).decode(errors="replace").strip())
        if all(_is_traced(task) for task in Path(f"/proc/{pid}/task").iterdir()):
            return
        time.sleep(0.01)
    raise RuntimeError(f"strace did not attach in {ATTACH_TIMEOUT_S} s")


def _is_traced(task: Path) -> bool:
    try:
        return "TracerPid:\t0\n" not in (task / "status").read_text()
    except OSError:
        return True  # the thread has ended
