"""Where Spark finds `wakeq` by itself: it looks for `DefaultSource` in every module named `pyspark_...`."""

from wakeq.pipeline.stream.source import QueueSource as DefaultSource

__all__ = ["DefaultSource"]
