"""queues: the supervisor of all queues: which there are, what is written to the state store, what if one crashes."""
