"""A lake as a data frame of Spark: PLACE --> events that took effect.

Spark is imported when a function is called.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def happened(spark: "SparkSession", lake: "Path") -> "DataFrame":
    """Return the events that took effect, with their clusters."""
    from pyspark.sql import functions as f

    cluster = f.regexp_extract("_metadata.file_name", "^[0-9a-f]+", 0)
    return spark.read.parquet(str(lake)).withColumn("cluster", cluster).where("outcome = 'done'")
