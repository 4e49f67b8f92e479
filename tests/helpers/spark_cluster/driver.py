"""Driver: a program that `spark-submit` runs on a standalone cluster, in a process group of its own, to be killed.

    cluster, Python, program, arguments, settings --> a process that is waited for or killed --> its output in a file

It never stays behind: it is killed at the end of the `with`, and by the kernel when this process dies.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.helpers.brokers.process import die_with_parent
from tests.helpers.spark_cluster.standalone import StandaloneCluster

PROGRAMS = Path(__file__).parent / "programs"
END_S = 300.0


class Driver:
    """One run of a program."""

    def __init__(
        self,
        cluster: StandaloneCluster,
        python: Path,
        program: str,
        arguments: Sequence[str],
        log: Path,
        settings: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        self._log = log
        command = [str(cluster.spark_home / "bin" / "spark-submit"), "--master", cluster.url, *flags]
        for name, value in (settings or {}).items():
            command += ["--conf", f"{name}={value}"]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, str(PROGRAMS / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=log.parent,
                env=cluster.environment() | {"PYSPARK_PYTHON": str(python)},
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> int:
        """Wait for its end; return its exit status, negative for a signal."""
        return self._process.wait(END_S)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def said(self) -> str:
        """The end of what it has said."""
        return self._log.read_text(errors="replace")[-5000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
