"""`wakeq run`: wrong use, and files that count as a change."""

import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from watchfiles import Change

from wakeq.cli import main
from wakeq.cli.worker import reload
from wakeq.cli.worker.reload import changes_below, is_code
from wakeq.config.logs import JsonLine
from wakeq.worker import LogContext

# Ten seconds for one change.
LOOKS_MAX = 50
SHOP = "from wakeq import Worker\nworker = Worker()\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with the module `shop`."""
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("WAKEQ_BROKER", "127.0.0.1:1")
    yield tmp_path
    sys.modules.pop("shop", None)


def test_process_that_ends_by_itself_is_not_restarted(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "shop:worker", "--drain", "--reload"]) == 2
    assert "--drain and --reload contradict each other" in capsys.readouterr().err


def test_worker_without_tasks_is_a_usage_error(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "shop:worker"])

    assert ended.value.code == 2
    assert "this worker has no tasks" in capsys.readouterr().err


# Changes ----------------------------------------------------------------------------------------------------------


def changed(changes: Iterator[set[tuple[Change, str]]]) -> set[str]:
    """Wait for the next changes; return the files."""
    found = next(filter(None, islice(changes, LOOKS_MAX)), set())
    return {path for _, path in found}


def test_added_changed_and_removed_files_are_changes(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    module = tmp_path / "package" / "module.py"
    changes = changes_below(str(tmp_path))

    # From here on no change is missed.
    assert next(changes) == set()
    module.touch()
    assert changed(changes) == {str(module)}
    os.utime(module, (1, 1))
    assert changed(changes) == {str(module)}
    module.unlink()
    assert changed(changes) == {str(module)}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shop.py", True),
        ("shop/tasks.py", True),
        ("notes.txt", False),
        (".venv/a.py", False),
        ("node_modules/a.py", False),
        ("lib/site-packages/a.py", False),
    ],
)
def test_files_outside_the_code_are_ignored(name: str, expected: bool) -> None:
    assert is_code(Path(name)) is expected


def test_code_below_a_hidden_directory_is_watched_from_inside_it(tmp_path: Path) -> None:
    here = tmp_path / ".work" / "site-packages"
    here.mkdir(parents=True)
    changes = changes_below(str(here))
    next(changes)

    (here / ".cache").mkdir()
    (here / ".cache" / "a.py").touch()
    (here / "shop.py").touch()

    assert changed(changes) == {str(here / "shop.py")}


def test_directory_that_cannot_be_watched_is_reported_with_advice(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def changes(_: str) -> Iterator[set[tuple[Change, str]]]:
        raise OSError("OS file watch limit reached")
        yield

    monkeypatch.setattr(reload, "changes_below", changes)
    # The signal handlers of the test program stay.
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    assert main(["run", "shop:worker", "--reload"]) == 78

    assert "cannot be watched (OS file watch limit reached); raise fs.inotify" in capsys.readouterr().err


def test_reload_without_the_package_names_the_extra(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "wakeq.cli.worker.reload")
    monkeypatch.setitem(sys.modules, "watchfiles", None)

    assert main(["run", "shop:worker", "--reload"]) == 69

    expected = "wakeq: --reload needs the package watchfiles; pip install 'wakeq[reload]'\n"
    assert capsys.readouterr().err == expected


# Logs -------------------------------------------------------------------------------------------------------------


def test_log_record_is_one_line_of_json() -> None:
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
