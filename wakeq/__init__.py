"""wakeq: a durable task broker.  `import wakeq` is the client's side only and loads no server code."""

__version__ = "0.1.0"
