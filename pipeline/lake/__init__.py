"""A lake: the history of brokers as Parquet files in a folder; and the way from files to messages.

Begin with archive.py, which adds the settled part of a journal to a lake, each event once.  lake.py reads a lake with
Spark and publishes messages of it again.  load.py publishes the rows of files, each once, without Spark or a lake.
"""
