"""core: the client without a socket: what is said and heard (session.py), and where a broker is found (route.py)."""
