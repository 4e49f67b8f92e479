"""What executors need for the formats `wakeq` and `wakeq-journal`: register them, send the code, say what is missing.

    register(spark) --> the formats are known in this session       with ship=True --> executors get wakeq and msgspec
    check(spark) --> a job that needs nothing of wakeq --> a line for each executor, and what to do: each logs in to the
                     broker as a query with the same options would

Both work in classic sessions and with Spark Connect. They change nothing in a session but what they say.
"""

import atexit
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wakeq.client.route import parse_address
from wakeq.pipeline.journal.source import JournalSource
from wakeq.pipeline.stream.broker import Broker
from wakeq.pipeline.stream.options import broker_of
from wakeq.pipeline.stream.source import QueueSource
from wakeq.protocol.errors import BadSettings
from wakeq.protocol.wire.worker.commands import SLICES_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Packages that no installation of Spark has; PyArrow and NumPy are there wherever Spark runs Arrow code in Python.
SHIPPED = ("wakeq", "msgspec")
NEEDED = ("wakeq", "msgspec", "pyarrow", "numpy")
# A task of a check holds its core for so long, so that the tasks reach all executors.
HOLD_S = 0.5
CONNECT_S = 5.0
ROWS = 4096
MISSING = "-"
# Characters of an error of Spark in one line.
CAUSE_MAX = 300


def register(spark: "SparkSession", *, ship: bool = False) -> None:
    """Make the formats `wakeq` and `wakeq-journal` known in this session.

    With `ship`, executors without wakeq get it from this driver, and msgspec; they need PyArrow, NumPy and the same
    release of Python on the same kind of machine.
    """
    if ship:
        _ship(spark)
    # A session of Spark Connect has no context: its server decides with which Python it plans.
    context = None if _is_remote(spark) else spark.sparkContext
    before = None if context is None else context.environment.get("PYTHONPATH")
    if ship and context is not None:
        from pyspark import SparkFiles

        # The driver plans streams with the Python of the executors, and without the files that they get.
        context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, (before, SparkFiles.getRootDirectory())))
    try:
        # A class that is made here is pickled with what it has, so the planner of Spark learns the number.
        known = type("QueueSource", (QueueSource,), {"parallelism": _parallelism(spark)})
        for source in (known, JournalSource):
            spark.dataSource.register(source)
    finally:
        if context is not None:
            context.environment.pop("PYTHONPATH", None)
            context.environment.update({} if before is None else {"PYTHONPATH": before})


def _is_remote(spark: "SparkSession") -> bool:
    return ".connect." in type(spark).__module__


def _parallelism(spark: "SparkSession") -> int:
    """Return how many tasks the session runs at the same time, as far as it knows."""
    if _is_remote(spark):
        told = spark.conf.get("spark.default.parallelism", None)
        return min(int(told), SLICES_MAX) if told else QueueSource.parallelism
    context = spark.sparkContext
    # On a cluster, executors may come later.
    least = 1 if context.master.startswith("local") else QueueSource.parallelism
    return min(max(int(context.defaultParallelism), least), SLICES_MAX)


def _ship(spark: "SparkSession") -> None:
    """Send the packages as archives: Spark unpacks each in the directory from which Python imports its files."""
    if not sys.platform.startswith("linux"):
        raise BadSettings(
            f"this driver runs on {sys.platform}, so its msgspec would not run on the executors: install wakeq there"
        )
    for name, archive in zip(SHIPPED, _archives(), strict=True):
        spark.addArtifacts(f"{archive}#{name}", archive=True)


@cache
def _archives() -> list[Path]:
    """Return the archives of the packages, made once in a process: each executor asks for them when it starts."""
    folder = tempfile.mkdtemp(prefix="wakeq-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return [_pack(name, Path(folder, f"{name}.zip")) for name in SHIPPED]


def _pack(name: str, archive: Path) -> Path:
    spec = find_spec(name)
    assert spec is not None, "it was imported"
    assert spec.origin is not None, "it is a package with code"
    root = Path(spec.origin).parent
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        # The rooms of an editable installation are links.
        for folder, subfolders, names in os.walk(root, followlinks=True):
            subfolders[:] = sorted(set(subfolders).difference({"__pycache__"}))
            for each in sorted(names):
                place = Path(folder, each)
                file.write(place, place.relative_to(root))
    return archive


@dataclass(frozen=True, slots=True)
class Place:
    """What a Python of the driver or of an executor said."""

    host: str
    # The end of its working directory: it tells executors of one host apart.
    directory: str
    program: str
    # Of each package that is needed, and of Python.
    versions: dict[str, str]
    # For each address of the broker: why it was not reached, or nothing.
    broker: dict[str, str]
    # Why the broker refused it; empty if it did not, or was not asked.
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check: print it, or ask `ok`."""

    driver: Place
    executors: list[Place]
    # What is wrong and what to do, a line each.
    problems: list[str]

    @property
    def ok(self) -> bool:
        return not self.problems

    def __repr__(self) -> str:
        columns = ("", "host", "directory", "python", *NEEDED, *self.driver.broker)
        lines = [columns, _line("driver", self.driver), *(_line("executor", place) for place in self.executors)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        return "\n".join([*table, *(self.problems or ["ready"])])


def _line(kind: str, place: Place) -> tuple[str, ...]:
    good = "refused" if place.refusal else "reached"
    reached = ("no" if error else good for error in place.broker.values())
    versions = (place.versions[name] for name in ("python", *NEEDED))
    return kind, place.host, place.directory, *versions, *reached


def check(
    spark: "SparkSession",
    *,
    broker: str = "",
    token: str = "",
    tokenFile: str = "",  # noqa: N803
    tls: str = "",
) -> Check:
    """Say for each executor which Python and which packages it has, and whether the broker lets it in.

    The arguments are options of a query, by their names there.
    """
    options = {"broker": broker, "token": token, "tokenfile": tokenFile, "tls": tls}
    there = broker_of(options, is_stream=False)
    probe = _probe(there)
    driver, problems, executors = Place(**probe(0.0)), list[str](), list[Place]()
    try:
        there.check_is_shared(spark.conf.get("spark.master", "") or "")
    except BadSettings as error:
        problems.append(str(error))
    # With Spark Connect, this program is not the driver, and moves no message.
    if not _is_remote(spark):
        problems += _problems_with_broker(f"driver {driver.host}", driver)
    try:
        found = _run_everywhere(spark, lambda _: repr(probe(HOLD_S)))
    except Exception as error:
        # Spark's exceptions have no common class; whatever it is, it is why no executor can run Python.
        problems.append(
            f"the executors cannot run this check: {_cause(error)}; if that is about their Python: PYSPARK_PYTHON must "
            f"name a Python {'.'.join(driver.versions['python'].split('.')[:2])} that every machine has at this path"
        )
    else:
        executors = sorted((Place(**one) for one in found), key=lambda place: (place.host, place.directory))
        problems += [problem for place in executors for problem in _problems_of(place, driver)]
        problems += _problems_of_planner(spark)
    return Check(driver, executors, problems)


def _probe(broker: Broker) -> Callable[[float], dict[str, Any]]:
    """Return a function that Spark pickles whole: it names nothing of this module."""
    needed, missing, connect_s = NEEDED, MISSING, CONNECT_S
    doors = {address.strip(): parse_address(address.strip()) for address in broker.address.split(",")}
    login: dict[str, Any] = {
        "address": broker.address,
        "token": broker.token,
        "token_file": broker.token_file,
        "tls": broker.tls,
    }

    def look(hold_s: float) -> dict[str, Any]:
        import importlib
        import os
        import platform
        import socket
        import sys
        import time

        def version(name: str) -> str:
            try:
                return str(importlib.import_module(name).__version__)
            except ImportError:
                return missing

        def reach(address: str) -> str:
            try:
                socket.create_connection(doors[address], connect_s).close()
            except OSError as error:
                return str(error)
            return ""

        def log_in() -> str:
            try:
                from wakeq.pipeline.stream.broker import Broker, name_options
                from wakeq.protocol.errors import WakeqError
            except ImportError:
                # The versions say what is missing.
                return ""
            try:
                Broker(**login).connect().close()
            except WakeqError as error:
                name_options(error)
                return str(error)
            return ""

        time.sleep(hold_s)
        broker = {address: reach(address) for address in doors}
        return {
            "host": socket.gethostname(),
            "directory": os.sep.join(os.getcwd().split(os.sep)[-2:]),
            "program": sys.executable,
            "versions": {"python": platform.python_version()} | {name: version(name) for name in needed},
            "broker": broker,
            # A broker that was not reached is told as that.
            "refusal": "" if all(broker.values()) else log_in(),
        }

    return look


def _run_everywhere(spark: "SparkSession", probe: Callable[[int], str]) -> list[dict[str, Any]]:
    """Run a probe in tasks of all executors; return what they said, each once."""
    from ast import literal_eval

    from pyspark.sql.functions import spark_partition_id, udf

    # The number of cores, which Spark Connect does not tell otherwise.
    tasks = spark.range(ROWS).select(spark_partition_id()).distinct().count()
    # Arrow may be what is missing.
    asked = udf(probe, "string", useArrow=False)
    rows = spark.range(0, tasks, 1, tasks).select(asked("id")).distinct().collect()
    return [literal_eval(row[0]) for row in rows]


def _problems_of(place: Place, driver: Place) -> list[str]:
    problems, who = list[str](), f"executor {place.host} ({place.directory})"
    missing = [name for name in NEEDED if place.versions[name] == MISSING]
    if missing:
        ways = [f"install it in {place.program}"]
        if not set(missing).difference(SHIPPED):
            ways.append("send it with register(spark, ship=True)")
        problems.append(f"{who} has no {' and no '.join(missing)}: {', or '.join(ways)}")
    elif place.versions["wakeq"] != driver.versions["wakeq"]:
        problems.append(
            f"{who} has wakeq {place.versions['wakeq']}, and the driver {driver.versions['wakeq']}: install one version"
        )
    return problems + _problems_with_broker(who, place)


def _problems_with_broker(who: str, place: Place) -> list[str]:
    problems = [
        f"{who} does not reach the broker at {address}: {error}" for address, error in place.broker.items() if error
    ]
    if place.refusal:
        problems.append(f"{who} cannot log in to the broker: {place.refusal}")
    return problems


def _problems_of_planner(spark: "SparkSession") -> list[str]:
    """Spark plans on the driver, with a Python that may be another one than the driver's."""
    try:
        _ = spark.read.format(QueueSource.name()).option("queue", "check").load().schema
    except Exception as error:
        # As above: whatever it is, a read or a write would end with it.
        cause, advice = _cause(error), "call register(spark)"
        if "No module named" in cause:
            advice = (
                "Spark plans with the Python that PYSPARK_PYTHON names: install wakeq in it, or call register(spark, "
                "ship=True)"
            )
        return [f"Spark cannot plan format wakeq on the driver: {cause}; {advice}"]
    return []


def _cause(error: Exception) -> str:
    """Return the line of an exception of Spark that says why."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith(("\t", " "))]
    causes = [line for line in lines if "Error" in line or "Cannot run program" in line or "Caused by" in line]
    return (causes or lines or [type(error).__name__])[-1].removeprefix("Caused by: ")[:CAUSE_MAX]
