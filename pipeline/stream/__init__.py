"""Queues as data frames: the data source `wakeq` of Spark.

Begin with source.py, the data source, which also reads a queue once.  reader.py reads a queue as a stream, in batches
that the broker keeps until they are settled; settling.py settles a batch earlier than Spark would.  sink.py publishes
data frames, all or nothing.  options.py checks the options and connects, arrow_blocks.py converts messages to columns.
"""
