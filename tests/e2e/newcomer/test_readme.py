"""The README is followed to the letter, against a real broker started by the command that it names.

The only thing that differs from a newcomer's terminal: the environment puts the data into a temporary directory
and the doors on free ports.  What the README prints below a command must come, but for uids and leases.
"""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
READY = re.compile(r"wakeq ready worker=(\S+) http=(\S+)")
UID = re.compile(r"\b[0-9A-Za-z]{7}_[0-9A-Za-z]{8}\b")
LEASE = re.compile(r"lease \S+")
START_S_MAX = 120  # `make serve` may have to install first

START = "make serve"
CONSOLES = [block for language, block in FENCE.findall(README) if language == "console"]
SNIPPETS = [block for language, block in FENCE.findall(README) if language == "python"]


def plain_environment(**more: str) -> dict[str, str]:
    """The environment of a newcomer: nothing of ours, nothing of a `make` that runs this test."""
    ours = ("WAKEQ_", "MAKE", "MFLAGS", "VIRTUAL_ENV", "PYTHON")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)} | more


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The README's broker, and the environment in which its commands find it."""
    folder = tmp_path_factory.mktemp("readme")
    settings = {
        "WAKEQ_WORKER_PORT": "0",
        "WAKEQ_HTTP_PORT": "0",
        "WAKEQ_TASKFLUX_PORT": "0",
        "WAKEQ_DATA_DIR": str(folder / "data"),
    }
    with (folder / "errors").open("w+") as said:
        broker = subprocess.Popen(
            ["bash", "-c", START],
            cwd=ROOT,
            env=plain_environment(**settings),
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            start_new_session=True,
        )
        try:
            worker = ready_port(broker, folder / "errors")
            yield plain_environment(WAKEQ_BROKER=worker)
        finally:
            if broker.poll() is None:
                os.killpg(broker.pid, signal.SIGTERM)
            broker.wait(timeout=30)


def ready_port(broker: "subprocess.Popen[str]", said: Path) -> str:
    """Read on until the broker says that it is ready."""
    assert broker.stdout is not None
    patience = threading.Timer(START_S_MAX, os.killpg, (broker.pid, signal.SIGKILL))
    patience.start()
    try:
        for line in broker.stdout:
            if found := READY.search(line):
                return found[1]
    finally:
        patience.cancel()
    pytest.fail(f"`{START}` ended without the ready line; it said: {said.read_text()}")


def commands_of(block: str) -> list[tuple[str, str]]:
    """Each command of a console block, with what is printed below it."""
    found: list[tuple[str, str]] = []
    for line in block.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:].rstrip("\n"), ""))
        else:
            found[-1] = (found[-1][0], found[-1][1] + line)
    return found


def comparable(output: str) -> str:
    """The output without what differs from run to run."""
    return LEASE.sub("lease LEASE", UID.sub("UID", output))


def same_uids(block: str, printed: list[str]) -> dict[str, str]:
    """The README's uids, each with the one that was really given."""
    shown = list(dict.fromkeys(UID.findall(block)))
    given = list(dict.fromkeys(UID.findall("".join(printed))))
    return dict(zip(shown, given, strict=False))


def test_readme_begins_with_the_command_that_starts_a_broker() -> None:
    assert commands_of(CONSOLES[0]) == [(START, "")]


def test_readme_commands_print_what_it_shows(environment: dict[str, str]) -> None:
    uids: dict[str, str] = {}
    for block in CONSOLES[1:]:
        printed: list[str] = []
        prologue = ". .venv/bin/activate\n"
        for command, shown in commands_of(block):
            for old, new in uids.items():
                command = command.replace(old, new)

            ran = subprocess.run(
                ["bash", "-c", f"{prologue}exec 2>&1\n{command}"],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )

            assert comparable(ran.stdout) == comparable(shown), command
            printed.append(ran.stdout)
            uids |= {old: new for old, new in same_uids(shown, [ran.stdout]).items() if old not in uids}


def test_readme_python_runs(environment: dict[str, str], tmp_path: Path) -> None:
    python = ROOT / ".venv" / "bin" / "python"
    printed = ""
    for snippet in SNIPPETS:
        ran = subprocess.run(
            [python, "-c", snippet],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

        assert (ran.returncode, ran.stderr) == (0, "")
        printed += ran.stdout

    assert printed == "ada@example.org 1 1\n"


def test_readme_names_only_make_targets_that_exist() -> None:
    targets = set(re.findall(r"`make (\w+)`", README)) | {START.removeprefix("make ")}

    for target in targets:
        subprocess.run(["make", "-n", target], cwd=ROOT, env=plain_environment(), check=True, stdout=subprocess.DEVNULL)
