"""A program as users give it to spark-submit: it counts what waits in a queue, as itself and as a verb of wakeq.

spark-submit --master MASTER tests/helpers/programs/spark_submitted.py BROKER    prints a line of JSON
"""

import json
import sys

from pyspark.sql import SparkSession

from wakeq.pipeline.spark import session_for


def count_in(spark: SparkSession) -> int:
    return int(spark.read.format("wakeq").option("broker", sys.argv[1]).option("queue", "q").load().count())


if __name__ == "__main__":
    with session_for("a verb", conf=[("spark.sql.shuffle.partitions", "3")]) as started:
        of_verb = {"master": started.sparkContext.master, "count": count_in(started)}
    own = SparkSession.builder.appName("own").getOrCreate()
    with session_for("a verb", master="local[7]") as there:
        is_own = there is own
    of_user = {"master": own.sparkContext.master, "count": count_in(own), "is_used": is_own}
    print(json.dumps([of_verb, of_user]))
