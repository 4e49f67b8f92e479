"""A broker in memory for the tests of the pipeline that need no Spark."""

from collections.abc import Iterator

import pytest

from tests.helpers.clients.bulk import MemoryClient


@pytest.fixture
def client() -> Iterator[MemoryClient]:
    made = MemoryClient()
    yield made
    made.machine.close()
