"""runtime: processes, mailboxes, groups, timers, supervision.  Sees only pykka and the standard library."""

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
