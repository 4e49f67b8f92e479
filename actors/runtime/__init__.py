"""runtime: processes, mailboxes, groups, timers, supervision.  Sees only pykka and the standard library."""

from wakeq.actors.runtime.groups import Groups
from wakeq.actors.runtime.links import Down, Links, NoSuchProcess
from wakeq.actors.runtime.process import Process
from wakeq.actors.runtime.reply import NoReplyYet, Reply
from wakeq.actors.runtime.rounds import Rounds
from wakeq.actors.runtime.runtime import NameTaken, NeverIdle, Runtime
from wakeq.actors.runtime.supervisor import Child, EssentialEnded, Supervisor, TooManyRestarts
from wakeq.actors.runtime.timers import Alarm, ClearAlarm, SetAlarm, Timers

__all__ = [
    "Alarm",
    "Child",
    "ClearAlarm",
    "Down",
    "EssentialEnded",
    "Groups",
    "Links",
    "NameTaken",
    "NeverIdle",
    "NoReplyYet",
    "NoSuchProcess",
    "Process",
    "Reply",
    "Rounds",
    "Runtime",
    "SetAlarm",
    "Supervisor",
    "Timers",
    "TooManyRestarts",
]
