"""Spark for the verbs: the session that is there, or one that is started for a verb and ends with it.

    an active session; spark-submit, SPARK_REMOTE, --master, spark-defaults.conf; else this machine --> a session
    an exception of Spark, with the traceback of a worker in it --> the error of wakeq, or SparkFailed

It never changes or ends a session that it has not started.  Programs of users need nothing of this: they build their
session themselves, and get the exceptions of Spark.
"""

import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from wakeq.protocol import errors
from wakeq.protocol.errors import NotInstalled, SparkFailed, WakeqError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The variable says that spark-submit has started the virtual machine already, and this program with it.
SUBMITTED = "PYSPARK_GATEWAY_PORT"
# The form of the address of a Connect server.
REMOTE = "sc://"
# On this machine, all cores; like a cluster, but unlike plain local[*], it tries a task four times.
LOCAL = f"local[{os.cpu_count() or 1},4]"
# Spark's own default of 1g is too small for a report.
DRIVER_MEMORY = "2g"
# Days and hours in the figures are those of UTC.
UTC = {"spark.sql.session.timeZone": "UTC"}
# The verb shows its progress itself.
QUIET = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
# What to do about errors of Spark that do not say it, by a part of their line.
ADVICE = {
    "No module named": (
        "; the Python of its executors (PYSPARK_PYTHON) needs it, and check(spark) of wakeq.pipeline says which of "
        "them lack it"
    ),
    "stopped SparkContext": (
        "; Spark has ended this program's session: it lost the master, or none answers there; the lines before this "
        "one say which"
    ),
}
TRACEBACK = "Traceback (most recent call last):"
_OWN_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def check_packages(*names: str, extra: str = "spark") -> None:
    """Raise NotInstalled if a package is missing."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise NotInstalled(f"not installed here: {', '.join(missing)}; pip install 'wakeq[{extra}]'")


@contextmanager
def session_for(
    name: str, *, master: str | None = None, conf: Iterable[tuple[str, str]] = ()
) -> Iterator["SparkSession"]:
    """Yield the session of this program; if it has none, start one and end it afterwards.

    `master` and `conf` apply to a session that is started; `master` may also be the address of a Connect server.
    """
    check_packages("pyspark", "pyarrow")
    there = session_that_is_there()
    if there is not None:
        yield there
        return
    started = _start(name, master, dict(conf))
    try:
        yield started
    finally:
        started.stop()


def session_that_is_there() -> "SparkSession | None":
    """Return the session of this program, whichever of its threads made it; None if it has none."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _start(name: str, master: str | None, conf: dict[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    if master is not None:
        key = "spark.remote" if master.startswith(REMOTE) else "spark.master"
        conf = {**conf, key: master}
    builder = SparkSession.builder.appName(name).config(map=UTC | conf)
    remote = conf.get("spark.remote", os.environ.get("SPARK_REMOTE", ""))
    if SUBMITTED in os.environ or remote.startswith(REMOTE):
        return builder.getOrCreate()
    from wakeq.pipeline.java import use_java

    use_java()
    # For Spark these come last, after conf, PYSPARK_SUBMIT_ARGS and spark-defaults.conf.
    with _default_environment(MASTER=LOCAL, SPARK_DRIVER_MEMORY=DRIVER_MEMORY, PYSPARK_PYTHON=sys.executable):
        # Of a Connect server, also one that Spark starts for this program, the others cannot be set.
        if not remote:
            _start_java(QUIET | UTC | conf)
            builder = builder.config(map=QUIET | conf)
        return builder.getOrCreate()


def _start_java(settings: dict[str, str]) -> None:
    """Start the virtual machine. It ends with this program, but not if an interrupt came between: that waits."""
    from pyspark import SparkConf, SparkContext

    is_main, interrupts = threading.current_thread() is threading.main_thread(), []
    before = signal.signal(signal.SIGINT, lambda *_: interrupts.append(True)) if is_main else None
    try:
        SparkContext._ensure_initialized(conf=SparkConf().setAll(list(settings.items())))
    finally:
        if is_main:
            signal.signal(signal.SIGINT, before)
    if interrupts:
        raise KeyboardInterrupt


@contextmanager
def _default_environment(**values: str) -> Iterator[None]:
    """Set variables that are not set, for so long."""
    new = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            del os.environ[name]


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
    """Return the error that a worker or the driver raised, by the last line of its traceback; else SparkFailed."""
    lines = text.splitlines()
    raised = _last_line_of_traceback(lines)
    name, _, said = raised.partition(": ")
    room, _, kind = name.rpartition(".")
    if said and room.startswith("wakeq."):
        found = getattr(errors, kind, WakeqError)
        # Only the text is known; `__init__` would need the parts from which it was made.
        error: WakeqError = found.__new__(found, said)
        return error
    words = (line.strip().removeprefix(": ") for line in lines if "error occurred while calling" not in line)
    cause = raised or next(filter(None, words), "it did not say why")
    advice = next((advice for sign, advice in ADVICE.items() if sign in cause), "")
    return SparkFailed(f"Spark failed: {cause}{advice}")


def _last_line_of_traceback(lines: Iterable[str]) -> str:
    """Return the line of the last exception: the first one after its traceback that is not indented."""
    found, is_inside = "", False
    for line in lines:
        if line.rstrip().endswith(TRACEBACK):
            is_inside = True
        elif is_inside and line and not line[0].isspace():
            found, is_inside = line.strip(), False
    return found
