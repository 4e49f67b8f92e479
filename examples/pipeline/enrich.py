"""A stream that makes of each order what it costs, and puts it on another queue, once.

    python examples/pipeline/enrich.py [CHECKPOINT]        orders as {"id": 7, "item": "tea", "count": 2}

Kill it whenever you like: started again with the same checkpoint it goes on where it was, and nothing is billed twice.
"""

import sys
from typing import TYPE_CHECKING

from wakeq.client.core.route import default_address
from wakeq.pipeline import autoack
from wakeq.pipeline.session import quiet_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

PRICES = [("tea", 3.5), ("cake", 4.25)]


def start(spark: "SparkSession", broker: str, checkpoint: str, *, only_what_is_there: bool = False) -> "StreamingQuery":
    """Begin the query; it runs until it is stopped, or until it has worked off what is there now."""
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
    trigger = {"availableNow": True} if only_what_is_there else {"processingTime": "1 second"}
    return writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else "enrich-checkpoint"
    with quiet_session("enrich") as session:
        autoack(session)
        start(session, default_address(), folder).awaitTermination()
