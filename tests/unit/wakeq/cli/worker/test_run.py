"""Proves wakeq/cli/{run,reload,logs}: which worker is meant, what is said if there is none, what counts as a change."""

import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from wakeq.cli import main
from wakeq.cli.worker.reload import snapshot
from wakeq.cli.worker.run import find_worker
from wakeq.config.logs import JsonLine
from wakeq.worker import LogContext, Worker

SHOP = "from wakeq import Worker\nworker = Worker()\nnumber = 7\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with the module `shop`, in which we are."""
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "broken.py").write_text("import no_such_thing\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("WAKEQ_BROKER", "127.0.0.1:1")
    yield tmp_path
    for name in ("shop", "broken", "empty"):
        sys.modules.pop(name, None)


def test_a_worker_is_found_by_module_and_name(here: Path) -> None:
    assert isinstance(find_worker("shop:worker"), Worker)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("shop", "shop is not MODULE:WORKER; write it like shop.tasks:worker"),
        ("shop:", "shop: is not MODULE:WORKER; write it like shop.tasks:worker"),
        ("shop.py:worker", "there is no module shop.py in"),
        ("shops:worker", "there is no module shops in"),
        ("shops.tasks:worker", "there is no module shops.tasks in"),
        ("shop:job", "job of shop does not exist; did you mean shop:worker?"),
        ("shop:number", "number of shop is of type int, not a Worker; did you mean shop:worker?"),
        ("empty:worker", "worker of empty does not exist; that module has no Worker"),
    ],
)
def test_what_is_no_worker_is_explained(here: Path, capsys: pytest.CaptureFixture[str], target: str, said: str) -> None:
    (here / "empty.py").touch()

    assert main(["run", target]) == 2
    assert said in capsys.readouterr().err


def test_an_error_inside_of_the_module_is_told_without_our_own_frames(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "broken:worker"]) == 2

    said = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in said if line.startswith("  File")] == [f'"{here}/broken.py",']
    assert said[-1].startswith("wakeq: broken cannot be imported: ModuleNotFoundError: No module named 'no_such_thing'")


def test_what_ends_by_itself_is_not_started_again(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "shop:worker", "--drain", "--reload"]) == 2
    assert "--drain and --reload contradict each other" in capsys.readouterr().err


def test_a_worker_without_tasks_is_a_wrong_use(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "shop:worker"])

    assert ended.value.code == 2
    assert "this worker has no tasks" in capsys.readouterr().err


# Changes ----------------------------------------------------------------------------------------------------------


def test_files_that_come_change_and_go_are_changes(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    module = package / "module.py"
    seen = [snapshot(str(tmp_path))]
    module.touch()
    seen.append(snapshot(str(tmp_path)))
    os.utime(module, (1, 1))
    seen.append(snapshot(str(tmp_path)))
    module.unlink()
    seen.append(snapshot(str(tmp_path)))

    assert [bool(files) for files in seen] == [False, True, True, False]
    assert seen[1] != seen[2]


@pytest.mark.parametrize("name", ["notes.txt", ".venv/a.py", "node_modules/a.py", "lib/site-packages/a.py"])
def test_what_is_no_code_of_ours_is_not_looked_at(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).touch()

    assert snapshot(str(tmp_path)) == {}


# Logs -------------------------------------------------------------------------------------------------------------


def test_a_record_is_one_line_of_json() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("shop", logging.ERROR, "", 1, "no %s", ("tea",), sys.exc_info())
    LogContext().filter(record)

    line = JsonLine(("queue", "uid", "delivery")).format(record)

    facts = json.loads(line)
    assert "\n" not in line
    assert (facts["level"], facts["logger"], facts["message"], facts["queue"]) == ("error", "shop", "no tea", "-")
    assert "ValueError: two\nlines" in facts["error"]
