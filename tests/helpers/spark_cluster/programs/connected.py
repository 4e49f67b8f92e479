"""What a program does with a Connect server; `python connected.py BROKER CHECKPOINT [ship]`, with SPARK_REMOTE.

It checks the executors, writes to queue `in`, and reads that; without `ship`, also as a stream to queue `out`.
"""

import sys

from pyspark.sql import SparkSession

from wakeq.pipeline import check, register

ROWS = 1000


def main(broker: str, checkpoint: str, *, ship: bool) -> None:
    spark = SparkSession.builder.getOrCreate()
    register(spark, ship=ship)
    print(check(spark, broker=broker))
    about = {"broker": broker, "queue": "in"}
    rows = spark.range(ROWS).selectExpr("concat('m', id) as body")
    rows.write.format("wakeq").options(**about).mode("append").save()
    print("rows", spark.read.format("wakeq").options(**about).load().count())
    if not ship:
        stream = spark.readStream.format("wakeq").options(**about).load().select("body").writeStream.format("wakeq")
        stream = stream.option("broker", broker).option("queue", "out").option("checkpointLocation", checkpoint)
        stream.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:3], ship="ship" in sys.argv)
