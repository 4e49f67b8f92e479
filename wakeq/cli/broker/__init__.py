"""broker: the commands that run a broker, watch it, and work on its data."""
