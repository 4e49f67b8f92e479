"""queue: the actor of one queue.  Begin with process.py; the rules that it follows are in `protocol/queue/`."""
