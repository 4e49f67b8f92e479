"""A Spark stream that computes the cost of each order and publishes it to another queue, each once.

    python examples/pipeline/enrich.py [CHECKPOINT]        orders as {"id": 7, "item": "tea", "count": 2}

It may be killed at any time: started again with the same checkpoint, it continues, and no order is billed twice.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from wakeq.client.route import default_address
from wakeq.pipeline import autoack

PRICES = [("tea", 3.5), ("cake", 4.25)]


def start(spark: SparkSession, broker: str, checkpoint: str, *, stop_when_empty: bool = False) -> StreamingQuery:
    """Start the query. It runs until it is stopped, or with `stop_when_empty` until all present orders are done."""
    prices = spark.createDataFrame(PRICES, "item string, price double")
    orders = (
        spark.readStream.format("wakeq")
        .option("broker", broker)
        .option("queue", "orders")
        .load()
        .selectExpr("from_json(cast(body as string), 'id int, item string, count int') as o")
        .select("o.*")
    )
    bills = orders.join(prices, "item").selectExpr("to_json(struct(id, item, count * price as cost)) as body")
    writer = bills.writeStream.format("wakeq").option("broker", broker).option("queue", "bills")
    trigger = {"availableNow": True} if stop_when_empty else {"processingTime": "1 second"}
    return writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else "enrich-checkpoint"
    session = SparkSession.builder.appName("enrich").getOrCreate()
    autoack(session)
    start(session, default_address(), folder).awaitTermination()
