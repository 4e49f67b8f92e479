"""data: work on a data directory without a running broker, and its opening by a node.

`opening.py` opens the files for a node; begin there.  The other files are commands for operators: inspect, repair,
back up, restore, recover a lost majority, reset the clock.  The command line and `wakeq.node` call them.
"""
