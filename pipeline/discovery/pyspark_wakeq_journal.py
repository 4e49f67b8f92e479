"""Where Spark finds `wakeq-journal` by itself: it looks for `DefaultSource` in every module named `pyspark_...`."""

from wakeq.pipeline.journal.source import JournalSource as DefaultSource

__all__ = ["DefaultSource"]
