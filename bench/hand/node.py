"""HandNode: a whole node, as `wakeq serve` runs it, on an event loop without sockets.

    folder, settings --> Node --> connect("worker") --> an End: bytes in, bytes out

This is the one place in the benchmark that knows how the product is made inside.  It knows `Node` with `start` and
`stop`, the settings, the names of the doors in what `start` returns, the class of the threads that wait for disks, and
the functions that give a process its turn.
"""

import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from bench.hand.loop import End, HandLoop
from wakeq.actors.runtime import Runtime
from wakeq.config.settings import Cluster, Settings
from wakeq.node.node import Node
from wakeq.storage.thread import DiskThread, InlineDisk

_ONE_MAIL, _SEVERAL_MAILS = Runtime._serve_turn.__code__, Runtime._serve_several.__code__


def turn_of(frame: FrameType) -> object | None:
    """Return the process whose turn begins with this call, if one does.

    A process with one mail handles it right from the run queue, and one with several is given them by a function.
    """
    code = frame.f_code
    if code is _SEVERAL_MAILS:
        return frame.f_locals[code.co_varnames[1]]
    if code.co_name == "on_receive" and frame.f_back is not None and frame.f_back.f_code is _ONE_MAIL:
        return frame.f_locals[code.co_varnames[0]]
    return None


class HandNode:
    """A node that has been started."""

    def __init__(self, loop: HandLoop, folder: Path, **settings: Any) -> None:
        self._loop = loop
        self._node = Node(Settings(data_dir=folder, worker_port=0, http_port=0, taskflux_port=0, **settings))
        addresses = loop.run_until_complete(self._node.start())
        self._ports = {door: int(address.rpartition(":")[2]) for door, address in addresses.items()}

    def connect(self, door: str) -> End:
        """Connect to one of its doors: worker, http or taskflux."""
        return self._loop.connect(self._ports[door])

    def stop(self) -> None:
        """Shut the node down as a signal would."""
        self._loop.run_until_complete(self._node.stop())


def member(node: int, peers: str) -> dict[str, Any]:
    """Return the settings of one node of a cluster."""
    return {"cluster": Cluster(node=node, peers=peers)}


def memory() -> Path | None:
    """Return a folder of a filesystem in memory, where files cost least; None if this machine has none."""
    folder = Path("/dev/shm")
    return folder if os.access(folder, os.W_OK) else None


def without_threads() -> None:
    """From now on, let nodes do at once, in the one thread, the work that waits for a disk."""
    for module in list(sys.modules.values()):
        if getattr(module, "DiskThread", None) is DiskThread:
            module.DiskThread = _disk_without_thread  # type: ignore[attr-defined]


def _disk_without_thread(_name: str, deliver: Any) -> InlineDisk:
    return InlineDisk(deliver)
