"""What the nodes of one cluster say to each other: bytes (frames.py) and the course of a connection (session.py)."""
