"""A StateStore in a directory of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.disks.state import open_store
from wakeq.storage.state.lmdb_store import StateStore


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def store(directory: Path) -> Iterator[StateStore]:
    store = open_store(directory)
    yield store
    store.close()
