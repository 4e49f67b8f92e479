"""worker: the verbs that run tasks and commands for messages."""
