"""The ports at which a process and its children listen, read from the kernel (Linux).

a process --> listening --> ports now, of it and its children          watched --> those that are opened meanwhile
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LISTENING = "0A"
LOOK_EVERY_S = 0.1  # a port of Spark waits for a program to start; to look oftener would keep that from its core


def listening(pid: int) -> set[int]:
    """Return the ports of TCP at which anybody can connect."""
    sockets = {name for one in family_of(pid) for name in _sockets_of(one)}
    lines = [line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/net/{kind}").read_text().splitlines()]
    return {
        int(words[1].rpartition(":")[2], 16)
        for words in lines
        if words[3] == LISTENING and f"socket:[{words[9]}]" in sockets
    }


def family_of(pid: int) -> Iterator[int]:
    """Yield a process and all that it and its children have started."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it has ended meanwhile
            for child in children.read_text().split():
                yield from family_of(int(child))


def _sockets_of(pid: int) -> set[str]:
    found = set()
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.add(os.readlink(descriptor))
    return found


@contextmanager
def watched(pid: int) -> Iterator[set[int]]:
    """Collect what a process and its children listen at during the block and did not before."""
    before, opened, over = listening(pid), set[int](), threading.Event()

    def look() -> None:
        while not over.wait(LOOK_EVERY_S):
            opened.update(listening(pid) - before)

    watching = threading.Thread(target=look)
    watching.start()
    try:
        yield opened
    finally:
        over.set()
        watching.join()
