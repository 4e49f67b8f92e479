"""doors: the commands for protocols other than the worker protocol."""
