"""The pytest plugin: a fixture `wakeq_broker` for every project that has wakeq installed.

Every run of pytest imports this file, even if no test uses a broker. So the import must never load the broker.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from wakeq.testing import Broker


@pytest.fixture
def wakeq_broker() -> Iterator["Broker"]:
    """A wakeq broker in memory, new for each test, with a clock that the test drives: see `wakeq.testing.broker`."""
    from wakeq.testing import broker

    with broker() as made:
        yield made
