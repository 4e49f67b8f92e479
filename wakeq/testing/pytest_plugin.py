"""The pytest plugin: a fixture `wakeq_broker`, which is there in every project that has wakeq installed.

It is imported by every run of pytest, whether a test asks for a broker or not; so it must never load one by itself.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from wakeq.testing import Broker


@pytest.fixture
def wakeq_broker() -> Iterator["Broker"]:
    """A wakeq broker in memory, new for each test, with a clock to drive: see `wakeq.testing.broker`."""
    from wakeq.testing import broker

    with broker() as made:
        yield made
