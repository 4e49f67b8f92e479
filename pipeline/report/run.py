"""A report from the journal to the file: plan, count with Spark, write the page, the JSON and the tables.

data directories, a stretch of time --> Report --> report.html, report.json, Parquet
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as parquet

from wakeq.pipeline.journal.plan import History
from wakeq.pipeline.journal.rows import Wanted
from wakeq.pipeline.journal.table import period_of
from wakeq.pipeline.report.page import page_of
from wakeq.pipeline.report.queries import COUNT_COLUMNS, LIFE_COLUMNS, counts_of, lives_of, spans_of
from wakeq.pipeline.report.report import Report, Tables, bucket_for, report_of
from wakeq.protocol.errors import StorageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTS = "spark.sql.shuffle.partitions"
PARTS_A_CORE = 4


def make_report(spark: "SparkSession", directories: Sequence[Path], wanted: Wanted) -> tuple[Report, Tables]:
    """Count the events and make the report."""
    period = period_of(History(directories))
    if period is None:
        raise StorageError(f"{directories[0]}: nothing has happened yet; run the broker first")
    since_ms = max(period[0], wanted.since_ms or period[0])
    until_ms = min(period[1] + 1, wanted.until_ms or period[1] + 1)
    since_s, until_s = since_ms // 1000, max(since_ms // 1000 + 1, -(-until_ms // 1000))
    bucket_s = bucket_for(since_s, until_s)
    wanted = replace(wanted, since_ms=since_ms, until_ms=until_ms)
    counted = _events(spark, directories, replace(wanted, columns=COUNT_COLUMNS))
    lives = lives_of(_events(spark, directories, replace(wanted, columns=LIFE_COLUMNS, done_only=True)))
    with _in_small_parts(spark):
        counts = counts_of(counted, bucket_s)
        tables = Tables(counts, spans_of(lives, counts))
    return report_of(tables, since_s, until_s, bucket_s), tables


@contextmanager
def _in_small_parts(spark: "SparkSession") -> Iterator[None]:
    """Let Spark group in parts that fit into memory; it joins parts that are too small."""
    before = int(spark.conf.get(PARTS))
    spark.conf.set(PARTS, str(max(before, PARTS_A_CORE * spark.sparkContext.defaultParallelism)))
    try:
        yield
    finally:
        spark.conf.set(PARTS, str(before))


def _events(spark: "SparkSession", directories: Sequence[Path], wanted: Wanted) -> "DataFrame":
    from wakeq.pipeline.journal.source import JournalSource, options_of

    spark.dataSource.register(JournalSource)
    return spark.read.format("wakeq-journal").options(**options_of(directories, wanted)).load()


def write_report(report: Report, tables: Tables, out: Path, parquet_folder: Path | None) -> list[Path]:
    """Write the page, the JSON beside it, and the tables if a folder is given; return the written paths."""
    written = [out, out.with_suffix(".json")]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page_of(report), encoding="utf-8")
    written[1].write_bytes(msgspec.json.format(msgspec.json.encode(asdict(report)), indent=1))
    if parquet_folder is not None:
        parquet_folder.mkdir(parents=True, exist_ok=True)
        for name in ("counts", "spans"):
            path = parquet_folder / f"{name}.parquet"
            parquet.write_table(getattr(tables, name), path)
            written.append(path)
    return written
