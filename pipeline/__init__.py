"""pipeline: the broker's history and queues as Spark data frames."""
