"""engine: the loop between the broker and the handlers. Begin with engine.py."""
