"""lake: history as Parquet files: written (archive.py), read (lake.py), brought back (load.py, replay.py)."""
