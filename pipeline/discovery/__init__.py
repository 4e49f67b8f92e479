"""Modules by which Spark finds the data sources of wakeq: each is installed as a module of its own, beside wakeq."""
