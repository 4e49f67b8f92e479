"""pipeline: the broker's history and queues as Spark data frames."""

from wakeq.pipeline.settling import autoack

__all__ = ["autoack"]
