"""log: the entries of the log (entries.py), their bytes (records.py, reader.py), its files (format.py)."""
