"""core: the client without a socket: the conversation with the broker (session.py) and where to connect (route.py)."""
