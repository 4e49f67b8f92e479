"""queues: the verbs for queues and their messages."""
