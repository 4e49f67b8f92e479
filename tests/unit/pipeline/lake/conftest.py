"""Places for the tests of lakes."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.disks.memory_folder import memory_folder
from tests.helpers.lakes.places import KINDS, Kind, renaming_files, s3_on_loopback


@pytest.fixture(scope="session")
def s3() -> Iterator[None]:
    # Its server would write a line for each request.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with s3_on_loopback():
        yield


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder where a sync costs nothing."""
    with memory_folder() as folder:
        yield folder


@pytest.fixture(params=KINDS)
def kind(request: Any, memory: Path) -> Iterator[Kind]:
    """Each kind of place."""
    if request.param == "s3":
        request.getfixturevalue("s3")
    with renaming_files():
        yield Kind(request.param, memory)
