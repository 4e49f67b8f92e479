"""The life of a message over HTTP: lives.py searches log and journal for it, history.py answers with it."""
