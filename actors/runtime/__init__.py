"""runtime: what all actors run on, a backend of pykka on one event loop.  Sees only pykka and the standard library.

    runtime.py      Process and Runtime: mailboxes, turns, the end of a process; begin here
    future.py       what an `ask` returns, for threads that wait and coroutines that await
    rounds.py       how much the doors may bring in one round of the loop
    groups.py, links.py, supervisor.py    who belongs together, who watches whom, who starts whom again
    timers.py, clock.py                   deadlines, and where readings of time come from

docs/internals/runtime.md explains it.
"""

from wakeq.actors.runtime.future import Future
from wakeq.actors.runtime.groups import Groups
from wakeq.actors.runtime.links import Down, Links, NoSuchProcess
from wakeq.actors.runtime.rounds import Rounds
from wakeq.actors.runtime.runtime import NeverIdle, Process, Runtime
from wakeq.actors.runtime.supervisor import Child, EssentialEnded, Supervisor, TooManyRestarts
from wakeq.actors.runtime.timers import Alarm, ClearAlarm, SetAlarm, Timers

__all__ = [
    "Alarm",
    "Child",
    "ClearAlarm",
    "Down",
    "EssentialEnded",
    "Future",
    "Groups",
    "Links",
    "NeverIdle",
    "NoSuchProcess",
    "Process",
    "Rounds",
    "Runtime",
    "SetAlarm",
    "Supervisor",
    "Timers",
    "TooManyRestarts",
]
