"""One Spark session for all tests that need one: starting it takes longer than they do."""

from collections.abc import Iterator
from typing import Any

import pytest

from wakeq.pipeline.session import check_packages, find_java, quiet_session
from wakeq.protocol.errors import NotInstalled


@pytest.fixture(scope="session")
def spark_session() -> Iterator[Any]:
    """Start the session, or say what it lacks."""
    try:
        check_packages("pyspark", "pyarrow")
        find_java()
    except NotInstalled as missing:
        pytest.skip(str(missing))
    with quiet_session("wakeq tests", cores=2) as session:
        yield session


@pytest.fixture
def spark(spark_session: Any) -> Iterator[Any]:
    """The session, without queries that a test has left running."""
    yield spark_session
    for query in spark_session.streams.active:
        query.stop()
