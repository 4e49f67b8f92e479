"""One Spark session for all tests that need one: starting it takes longer than they do."""

import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from wakeq.pipeline.java import use_java
from wakeq.pipeline.spark import check_packages
from wakeq.protocol.errors import NotInstalled

ENVIRONMENT = {
    "PYSPARK_PYTHON": sys.executable,
    # At a port, Spark takes the first client that connects for its worker, also one that looks for a broker.
    "PYSPARK_UDS_MODE": "true",
    "SPARK_LOCAL_IP": "127.0.0.1",
}
SETTINGS = {
    "spark.driver.extraJavaOptions": "-Xss8m",  # Spark searches long errors with a pattern that overflows a stack of 1m
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@pytest.fixture(scope="session")
def needs_spark() -> None:
    """Say what is missing for tests with Spark."""
    try:
        check_packages("pyspark", "pyarrow")
        use_java()
    except NotInstalled as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def spark_session(needs_spark: None) -> Iterator[Any]:
    """Start the session as a program of a user does."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        session = SparkSession.builder.appName("wakeq tests").master("local[2,4]").config(map=SETTINGS).getOrCreate()
        yield session
        session.stop()


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
