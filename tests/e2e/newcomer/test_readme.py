"""The README is followed to the letter, against a real broker started by the command that it names.

The only thing that differs from a newcomer's terminal: the environment puts the data into a temporary directory, the
doors on free ports, and the programs into a folder of their own.  The example of Spark is run with its own tests.
"""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.programs.followed_page import FENCE, FollowedPage

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
READY = re.compile(r"wakeq ready worker=(\S+) http=(\S+)")
START_S_MAX = 120  # `make serve` may have to install first

START = "make serve"
CONSOLES = [block for language, block in FENCE.findall(README) if language == "console"]


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


def test_readme_begins_with_the_command_that_starts_a_broker() -> None:
    assert CONSOLES[0] == f"$ {START}\n"
    assert README.split(f"$ {START}")[0].count("\n") < 15


def test_readme_is_what_happens(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    page = FollowedPage(tmp_path, environment | {"PATH": f"{ROOT / '.venv' / 'bin'}{os.pathsep}{environment['PATH']}"})
    try:
        for language, block in FENCE.findall(README):
            if language == "python":
                page.write(block)
        for block in CONSOLES[1:]:
            page.type(block)
        page.run("python ask.py", "ada@example.org 1 1\n")
        page.end()
    finally:
        page.kill()


def test_readme_names_only_make_targets_that_exist() -> None:
    targets = set(re.findall(r"`make (\w+)`", README)) | {START.removeprefix("make ")}

    for target in targets:
        subprocess.run(["make", "-n", target], cwd=ROOT, env=plain_environment(), check=True, stdout=subprocess.DEVNULL)
