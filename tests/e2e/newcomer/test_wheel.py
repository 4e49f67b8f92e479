"""The wheel is built, installed into an empty environment, and used there."""

import re
import shutil
import signal
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
READY = re.compile(r"wakeq ready worker=(\S+) http=(\S+)")
NOT_SOURCE = shutil.ignore_patterns(
    ".git", ".venv", "build", "dist", "wakeq-data", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis", ".peers"
)

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", autouse=True)
def without_sources() -> Iterator[None]:
    """No PYTHONPATH, by which pip might find wakeq installed already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        yield


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources, so that nothing is left behind in them."""
    folder = tmp_path_factory.mktemp("wheel")
    skip_without_an_index(folder)
    shutil.copytree(ROOT, folder / "source", symlinks=True, ignore=NOT_SOURCE)
    pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", str(folder), str(folder / "source"))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of an empty environment into which the wheel was installed."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder)  # without a pip of its own: ours installs into it
    pip(sys.executable, "--python", str(folder / "bin" / "python"), "install", str(wheel))
    return folder / "bin"


def pip(python: str, *arguments: str) -> None:
    ran = subprocess.run(
        [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def skip_without_an_index(folder: Path) -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "download", "--no-deps", "--dest", str(folder / "try"), "click"],
        capture_output=True,
        check=False,
    )
    if asked.returncode:
        pytest.skip("pip reaches no package index from here, so nothing can be installed")


def test_wheel_holds_every_room_once_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    for name in (
        "wakeq/py.typed",
        "wakeq/cli/entry.py",
        "wakeq/protocol/errors.py",
        "wakeq/actors/__init__.py",
        "wakeq/http/pages/main.js",
        "wakeq/http/pages/vendor/uPlot.iife.min.js",
        "wakeq/http/pages/vendor/uPlot.LICENSE",
    ):
        assert names.count(name) == 1, name
    # Spark looks for data sources in modules named `pyspark_...`.
    rooms = {"wakeq", "pyspark_wakeq.py", "pyspark_wakeq_journal.py"}
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == rooms
    assert [name for name in names if name.endswith("licenses/LICENSE")]


def test_editable_install_has_the_modules_that_spark_looks_for(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "empty")
    python = tmp_path / "empty" / "bin" / "python"
    install = ["install", "--no-deps", "--config-settings", "editable_mode=compat", "-e"]

    pip(sys.executable, "--python", str(python), *install, str(wheel.parent / "source"))

    listed = "import pkgutil; print(*sorted(m.name for m in pkgutil.iter_modules() if m.name.startswith('pyspark_')))"
    said = subprocess.run([python, "-c", listed], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert said.stdout.split() == ["pyspark_wakeq", "pyspark_wakeq_journal"]


def test_installed_wheel_prints_its_version(environment: Path, wheel: Path) -> None:
    said = subprocess.run([environment / "wakeq", "--version"], capture_output=True, text=True, check=True)

    assert said.stdout == f"wakeq {wheel.name.split('-')[1]}\n"


def test_installed_wheel_serves_publishes_and_fetches(environment: Path, tmp_path: Path) -> None:
    wakeq = str(environment / "wakeq")
    serve = [wakeq, "serve", "--data-dir", str(tmp_path / "data"), "--worker-port", "0", "--http-port", "0"]
    serve += ["--taskflux-port", "0"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as broker:
        try:
            assert broker.stdout is not None
            ready = READY.search(broker.stdout.readline())
            assert ready
            talk = [wakeq, "--broker", ready[1]]

            uid = subprocess.run([*talk, "pub", "q", "hello"], capture_output=True, text=True, check=True).stdout
            body = subprocess.run([*talk, "fetch", "q", "--ack"], capture_output=True, text=True, check=True).stdout
        finally:
            broker.send_signal(signal.SIGTERM)

    assert len(uid.strip()) == 16
    assert body == "hello\n"
    assert broker.returncode == 0
