"""Proves who imports whom: the rooms, one name for each module, and that the client's side stays light."""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROOMS_AT_THE_TOP = {"actors", "storage", "protocol", "pipeline"}
SUSPECT = re.compile(rf"^\s*(?:from|import)\s+(?:.*,\s*)?(?:{'|'.join(ROOMS_AT_THE_TOP)})\b", re.MULTILINE)
NOT_FOR_CLIENTS = ("lmdb", "pykka", "aiohttp", "uvloop", "click", "rich", "asyncio", "msgpack", "websockets")
TIMES_ASYNCIO_MAX = 1.5  # modules: asyncio has about a hundred, and takes some 30 ms of a core that nobody else uses


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_rooms_are_imported_by_their_package_name() -> None:
    folders = ("wakeq", *ROOMS_AT_THE_TOP, "tests", "bench", "examples", "docs")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]

    found = [f"{file}: {name}" for file in files for name in imported(file) if name in ROOMS_AT_THE_TOP]

    assert len(files) > 20
    assert not found


def imported(file: Path) -> list[str]:
    """The first words of every absolute import of a file that may name a room: to parse them all takes seconds."""
    names: list[str] = []
    text = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if SUSPECT.search(text) else ():
        if isinstance(node, ast.Import):
            names += [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.append(node.module.partition(".")[0])
    return names


def test_importing_the_client_loads_nothing_of_the_server() -> None:
    code = "import sys, wakeq; wakeq.Client; print(' '.join(sys.modules))"

    loaded = run_python(code).split()

    assert "wakeq.client.blocking" in loaded
    assert not [name for name in NOT_FOR_CLIENTS if name in loaded]
    rooms = {name.split(".")[1] for name in loaded if name.startswith("wakeq.")}
    assert rooms == {"client", "protocol"}


def test_msgpack_is_loaded_by_what_decodes_a_value_of_messagepack_and_not_before() -> None:
    code = """
import sys, wakeq.monique, wakeq.node.node
before = "msgpack" in sys.modules
wakeq.monique.make("a_b", 1, encoding="MessagePack").value()
print(before, "msgpack" in sys.modules)
"""

    assert run_python(code) == "False True\n"


def test_importing_wakeq_alone_loads_no_more_than_itself() -> None:
    loaded = run_python("import sys, wakeq; print(' '.join(n for n in sys.modules if 'wakeq' in n))").split()

    assert [name for name in loaded if not name.startswith("__editable__")] == ["wakeq"]


def test_importing_the_client_loads_few_modules() -> None:
    assert modules_of("wakeq.client.blocking") < TIMES_ASYNCIO_MAX * modules_of("asyncio")


def modules_of(module: str) -> int:
    return int(run_python(f"import sys; before = len(sys.modules); import {module}; print(len(sys.modules) - before)"))


def test_every_public_name_can_be_had() -> None:
    import wakeq

    for name in wakeq.__all__:
        assert getattr(wakeq, name) is not None
    assert set(wakeq.__all__) - {"__version__"} == set(wakeq.HOMES)


def test_journal_is_read_without_spark() -> None:
    code = "import sys, wakeq.pipeline.journal.table; print(any(n.partition('.')[0] == 'pyspark' for n in sys.modules))"

    assert run_python(code) == "False\n"
