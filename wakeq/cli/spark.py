"""Spark under a command: the options --master and --conf, a session for one command, and its progress line.

    --master, --conf --> spark_for --> a session; a line on a terminal while it works

`wakeq.pipeline.spark` decides about the session; errors of Spark become one line.
"""

import logging
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from wakeq.cli.common import Command
from wakeq.cli.progress import Progress, progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The pause between two updates of the progress line.
REFRESH_S = 0.5
MASTER = re.compile(r"(spark|k8s|sc)://.|yarn$|local(-cluster)?($|\[)")


class Master(click.ParamType[str]):
    """The address of Spark; of a wrong one Spark itself would only say that its gateway has exited."""

    name = "URL"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not MASTER.match(str(value)):
            self.fail(f"{value!r} is not an address of Spark; write spark://HOST:PORT, yarn or local[4]", param, ctx)
        return str(value)


class Setting(click.ParamType[tuple[str, str]]):
    """A setting of Spark, as spark-submit takes it."""

    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, is_setting, text = str(value).partition("=")
        if not is_setting or not key.startswith("spark."):
            self.fail(f"{value!r} is not a setting of Spark; write spark.executor.memory=4g", param, ctx)
        return key, text


def spark_options(command: Command) -> Command:
    """Add --master and --conf, as every command that can run on Spark has them."""
    master = click.option(
        "--master",
        type=Master(),
        metavar="URL",
        help="Run on this Spark: spark://HOST:PORT, yarn, k8s://..., sc://HOST, local[4].",
    )
    conf = click.option(
        "--conf", type=Setting(), metavar="KEY=VALUE", multiple=True, help="A setting of Spark; repeatable."
    )
    return master(conf(command))


@contextmanager
def spark_for(
    name: str,
    doing: str,
    *,
    master: str | None = None,
    conf: tuple[tuple[str, str], ...] = (),
    is_shown: bool = True,
) -> Iterator["SparkSession"]:
    """Yield a session, and show on a terminal what it does."""
    from wakeq.pipeline.spark import check_packages

    check_packages("pyspark", "pyarrow")
    from wakeq.pipeline.spark import plain_errors, session_for

    # Spark's client logs an interrupt with its traceback if logging has no handler.
    silent = logging.NullHandler()
    logging.root.addHandler(silent)
    try:
        with (
            progress("starting Spark", is_wanted=is_shown) as shown,
            plain_errors(),
            session_for(name, master=master, conf=conf) as spark,
            _progress_of(spark, doing, shown),
        ):
            yield spark
    finally:
        logging.root.removeHandler(silent)


@contextmanager
def _progress_of(spark: "SparkSession", doing: str, shown: Progress) -> Iterator[None]:
    """Show the work of Spark, and how many parts of its active stages are done."""
    from pyspark.sql.utils import is_remote

    shown.begin(doing, "parts")
    over = threading.Event()
    watching = threading.Thread(target=_watch, args=(spark, shown, over), name="wakeq-progress", daemon=True)
    # A client of a Connect server does not see its stages.
    if sys.stderr.isatty() and not is_remote():
        watching.start()
    try:
        yield
    finally:
        over.set()
        if watching.ident is not None:
            watching.join()


def _watch(spark: "SparkSession", shown: Progress, over: threading.Event) -> None:
    from py4j.protocol import Py4JError

    # The command itself reports that Spark has died.
    with suppress(Py4JError, OSError):
        _show_stages(spark, shown, over)


def _show_stages(spark: "SparkSession", shown: Progress, over: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    while not over.wait(REFRESH_S):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        done, parts = sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
        if parts:
            shown.update(done, parts)
