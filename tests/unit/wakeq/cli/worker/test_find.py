"""Tests of find.py: the choice of the worker, the search of a package, and errors of its modules."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from wakeq.cli import main
from wakeq.cli.worker.find import find_worker
from wakeq.worker import BadHandler, Worker

PACKAGE = {
    "app/__init__.py": "",
    "app/worker.py": "from wakeq import Worker\nworker = Worker(concurrency=2)\n",
    "app/bills/__init__.py": "",
    "app/bills/tasks.py": "from app.worker import worker\n@worker.task('bills')\ndef bill(number: int) -> None: ...\n",
    "app/mails.py": (
        "from wakeq import Worker\nmails = Worker(concurrency=5)\n"
        "@mails.task('mails')\ndef mail(to: str) -> None: ...\nmails.schedule(mail, 60, arguments={'to': 'ada'})\n"
    ),
    "app/__main__.py": "raise RuntimeError('a program')\n",
    "app/conftest.py": "raise RuntimeError('for tests')\n",
    "app/test_mails.py": "raise RuntimeError('a test')\n",
    "app/tests/__init__.py": "raise RuntimeError('tests')\n",
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with the module `shop` and the package `app`; its modules are forgotten afterwards."""
    shop = "from wakeq import Worker\nworker = Worker()\nnumber = 7\n"
    write(tmp_path, PACKAGE | {"shop.py": shop, "broken.py": "import no_such_thing\n", "empty.py": ""})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("target", ["shop:worker", "shop"])
def test_worker_is_found_by_module_with_and_without_its_name(here: Path, target: str) -> None:
    worker = find_worker(target)

    assert isinstance(worker, Worker)
    assert worker is sys.modules["shop"].worker


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("shop:", "shop: is neither MODULE:WORKER nor MODULE; write it like shop.tasks:worker or shop"),
        (":worker", ":worker is neither MODULE:WORKER nor MODULE"),
        ("shop.py:worker", "there is no module shop.py in"),
        ("app/mails.py", "and none is installed; write app.mails"),
        ("shops", "there is no module shops in"),
        ("shops.tasks:worker", "there is no module shops.tasks in"),
        ("shop:job", "job of shop does not exist; did you mean shop:worker?"),
        ("shop:number", "number of shop is of type int, not a Worker; did you mean shop:worker?"),
        ("empty:worker", "worker of empty does not exist; that module has no Worker"),
        ("empty", "there is no Worker in empty; write `worker = Worker()` in one of its modules"),
    ],
)
def test_invalid_worker_target_is_explained(
    here: Path, capsys: pytest.CaptureFixture[str], target: str, said: str
) -> None:
    assert main(["run", target]) == 2
    assert said in capsys.readouterr().err


def test_package_is_searched_for_tasks_without_its_programs_and_tests(here: Path) -> None:
    worker = find_worker("app")

    assert sorted(worker.tasks) == ["bills", "mails"]


def test_joined_workers_share_the_largest_concurrency_and_all_schedules(here: Path) -> None:
    worker = find_worker("app")

    assert worker.concurrency == 5
    assert [schedule.publisher.task.queue for schedule in worker.schedules] == ["mails"]


def test_module_of_a_package_brings_only_its_own_workers(here: Path) -> None:
    assert list(find_worker("app.mails").tasks) == ["mails"]


def test_queue_with_two_handlers_in_a_package_is_refused(here: Path) -> None:
    write(here, {"app/more.py": PACKAGE["app/mails.py"]})

    with pytest.raises(BadHandler, match=r"mails has two handlers, .*app.mails.mail.* and .*app.more.mail"):
        find_worker("app")


def test_workers_of_different_brokers_are_not_joined(here: Path) -> None:
    other = "from wakeq import Worker\nother = Worker('elsewhere:2601')\n@other.task('q')\ndef q() -> None: ...\n"
    write(here, {"app/other.py": other})

    with pytest.raises(BadHandler, match="have different brokers, tokens or TLS; run each of them as MODULE:WORKER"):
        find_worker("app")


def test_package_without_a_worker_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here, {"plain/__init__.py": "", "plain/sums.py": ""})

    assert main(["run", "plain"]) == 2
    assert "there is no Worker in the 2 modules of plain" in capsys.readouterr().err


def test_error_inside_the_module_shows_only_its_own_frames(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "broken:worker"]) == 2

    said = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in said if line.startswith("  File")] == [f'"{here}/broken.py",']
    assert said[-1].startswith("wakeq: broken cannot be imported: ModuleNotFoundError: No module named 'no_such_thing'")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\nimport no_such_thing\n", "ModuleNotFoundError: No module named 'no_such_thing' ({file}:2)"),
        ("1 +\n", "SyntaxError: invalid syntax (tasks.py, line 1)"),
    ],
)
def test_module_of_a_package_that_cannot_be_imported_is_named_with_the_place(
    here: Path, capsys: pytest.CaptureFixture[str], text: str, expected: str
) -> None:
    write(here, {"app/more/__init__.py": "", "app/more/tasks.py": text})

    assert main(["run", "app"]) == 2

    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(
        f"wakeq: app.more.tasks cannot be imported: {expected.format(file=here / 'app/more/tasks.py')}"
    )
