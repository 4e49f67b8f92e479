"""The commands that run workers: `run` and `tasks` for the Worker of a Python program, `work` for any other program.

Begin with run.py; with --reload it wraps the worker into reload.py.  work.py makes a Worker whose handler is a Command
(command.py), which runs a program for each message.  Everything else is done by wakeq.worker.
"""
