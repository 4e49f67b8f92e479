"""queues: the commands for queues and their messages."""
