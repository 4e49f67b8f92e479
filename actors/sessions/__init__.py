"""sessions: an actor for each connection, one kind for each protocol: worker.py, taskflux.py, monique.py."""
