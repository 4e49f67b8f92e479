"""log: the log as files: segments (segmented_log.py), metadata, the journal of sealed segments."""
