"""`wakeq top`: the queues and the node, live in a terminal.

command.py has the command and the loop around the terminal; measure.py makes rates of readings; screen.py decides what
is shown and what a key does; keyboard.py reads keys.
"""

from wakeq.cli.broker.top.command import top

__all__ = ["top"]
