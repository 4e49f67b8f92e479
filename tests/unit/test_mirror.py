"""Proves that tests/unit mirrors the tree: each test file lies where its module lies, and begins with its name.

`tests/unit/storage/log/test_metadata_cuts.py` proves `storage/log/metadata.py`; `_cuts` says what part of it.
"""

from pathlib import Path

UNIT = Path(__file__).parent
ROOT = UNIT.parents[1]
ROOMS = ("protocol", "storage", "actors", "wakeq", "pipeline")
NOT_OF_A_MODULE = {Path("wakeq/test_imports.py")}  # about all modules together


def test_unit_tests_mirror_the_tree() -> None:
    files = [path.relative_to(UNIT) for room in ROOMS for path in (UNIT / room).rglob("test_*.py")]

    strays = [str(file) for file in files if file not in NOT_OF_A_MODULE and not has_module(file)]

    assert len(files) > 100
    assert strays == []


def has_module(file: Path) -> bool:
    words = file.stem.removeprefix("test_").split("_")
    names = ("_".join(words[:count]) for count in range(len(words), 0, -1))
    return any((ROOT / file.parent / f"{name}.py").exists() for name in names)
