"""version1: the files of the program before this one, read once and imported.

Begin with files.py, which reads log, metadata and snapshot; commands.py decodes the commands in the log, record.py the
records of a key-value store.  `wakeq/data/opening.py` runs the import.
"""
