"""stream: queues as data frames: read (source.py), streamed (reader.py), written (sink.py)."""
