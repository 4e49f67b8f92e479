"""One Spark session for all tests that need one: starting it takes longer than they do."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from wakeq.pipeline.session import check_packages, find_java, quiet_session
from wakeq.protocol.errors import NotInstalled


@pytest.fixture(scope="session")
def needs_spark() -> None:
    """Say what is missing for tests with Spark."""
    try:
        check_packages("pyspark", "pyarrow")
        find_java()
    except NotInstalled as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def spark_session(needs_spark: None) -> Iterator[Any]:
    """Start the session, with sockets: at a port, a client of a broker that has ended would be taken for a worker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_UDS_MODE", "true")
        with quiet_session("wakeq tests", cores=2) as session:
            yield session


@pytest.fixture(autouse=True)
def own_formatters() -> Iterator[None]:
    """Leave pytest's handlers as they were: pyspark's own loggers give each a formatter that asks all errors for words.

    pytest adds its handlers to every logger that does not propagate, so these must go too.
    """
    before = [(handler, handler.formatter) for handler in logging.root.handlers]
    yield
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.root.manager.loggerDict.pop(name, None)
    for handler, formatter in before:
        handler.setFormatter(formatter)


@pytest.fixture
def spark(spark_session: Any) -> Iterator[Any]:
    """The session, without queries that a test has left running."""
    yield spark_session
    for query in spark_session.streams.active:
        query.stop()
