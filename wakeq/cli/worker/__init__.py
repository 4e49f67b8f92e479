"""worker: the commands that run workers: run, work, tasks."""
