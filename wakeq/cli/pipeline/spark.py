"""A session of Spark for one command: silent, with a progress line, and with errors of one line.

name, purpose --> SparkSession          a failure of Spark --> a WakeqError
"""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from wakeq.cli.output import show_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFRESH_S = 0.5


@contextmanager
def spark_for(name: str, doing: str, *, verbose: bool = False) -> Iterator["SparkSession"]:
    """Yield a session; the caller has checked that pyspark is installed."""
    from wakeq.pipeline.session import quiet_session
    from wakeq.pipeline.stream.failures import told_plainly

    show_progress("starting Spark ...")
    # Spark's client logs an interrupt with its traceback if logging has no handler.
    silent = logging.NullHandler()
    logging.root.addHandler(silent)
    try:
        with (
            quiet_session(name, verbose=verbose, mute=not verbose) as spark,
            _progress_of(spark, doing),
            told_plainly(),
        ):
            yield spark
    finally:
        logging.root.removeHandler(silent)
        show_progress("")


@contextmanager
def _progress_of(spark: "SparkSession", doing: str) -> Iterator[None]:
    """Show the work of Spark, and how many parts of its active stages are done."""
    show_progress(f"{doing} ...")
    over = threading.Event()
    watching = threading.Thread(target=_watch, args=(spark, doing, over), name="wakeq-progress", daemon=True)
    if sys.stderr.isatty():
        watching.start()
    try:
        yield
    finally:
        over.set()
        if watching.ident is not None:
            watching.join()


def _watch(spark: "SparkSession", doing: str, over: threading.Event) -> None:
    tracker, shown = spark.sparkContext.statusTracker(), ""
    while not over.wait(REFRESH_S):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        done, parts = sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
        text = f"{doing}, {done} of {parts} parts ..."
        if parts and text != shown:
            show_progress(shown := text)
