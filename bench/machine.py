"""Figures of the machine: CPU, memory and disk of a process tree, the sync latency of a disk, and who else
was busy.

In go process ids and paths, out come plain numbers.  Nothing here starts, stops or changes a process, and
the only file that is written is the probe's own, which is removed again.
"""

import os
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PROBE_SYNCS = 40
PROBE_BYTES = 128
NOT_A_DISK = ("tmpfs", "ramfs", "devtmpfs")


def process_tree(root: int) -> list[int]:
    """The process and everything that it started and that still runs."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat_fields(int(entry))):
            children.setdefault(int(fields[1]), []).append(int(entry))
    found = [root]
    for pid in found:  # grows while it is walked
        found += children.get(pid, [])
    return found


def _stat_fields(pid: int) -> list[str]:
    """/proc/PID/stat from the state on (field 3 of proc(5)); nothing when the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_s(pids: Iterable[int]) -> float:
    """CPU time that these processes took, all their threads and their ended children included."""
    return sum(int(ticks) for pid in pids for ticks in _stat_fields(pid)[11:15]) / TICKS_PER_SECOND


def own_cpu_s() -> float:
    times = os.times()
    return times.user + times.system


def busy_cpu_s() -> float:
    """CPU time that everything on this machine took since it was started; waiting for a disk is not work."""
    with open("/proc/stat") as file:
        ticks = [int(field) for field in file.readline().split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / TICKS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident bytes; `own` is the part that no file backs, which the kernel cannot simply drop."""

    resident_bytes: int
    own_bytes: int


def memory_of(pids: Iterable[int]) -> Memory:
    resident = own = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            match line.split():
                case ["VmRSS:", kilobytes, "kB"]:
                    resident += int(kilobytes) * 1024
                case ["RssAnon:", kilobytes, "kB"]:
                    own += int(kilobytes) * 1024
    return Memory(resident, own)


def disk_bytes(folder: Path, only: Callable[[Path], bool] = lambda path: True) -> int:
    """Bytes that the disk really gave; LMDB's file and preallocated segments have holes that cost nothing."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            try:
                total += path.stat().st_blocks * 512 if only(path) else 0
            except OSError:
                continue  # a segment that was removed while we walked
    return total


def is_lmdb(path: Path) -> bool:
    return path.suffix == ".mdb"


def sync_p50_us(folder: Path, syncs: int = PROBE_SYNCS) -> float:
    """The median time that fdatasync takes after a small append, in this directory."""
    path = folder / "sync-probe"
    taken: list[float] = []
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_APPEND, 0o600)
    try:
        for _ in range(syncs):
            os.write(descriptor, b"x" * PROBE_BYTES)
            began = time.perf_counter()
            os.fdatasync(descriptor)
            taken.append((time.perf_counter() - began) * 1e6)
    finally:
        os.close(descriptor)
        path.unlink()
    return median(taken)


def filesystem_of(folder: Path) -> str:
    """The type of the filesystem that the directory is on, as the kernel names it."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, mount_kind, *_ = line.split()
        inside = mount == "/" or f"{folder.resolve()}/".startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, mount_kind
    return kind


def facts(folder: Path) -> str:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}, data on {filesystem_of(folder)}"
    )


class Meter:
    """One stretch of work: wall time, CPU of the server and of the generator, and of all other processes."""

    def __init__(self, pids: Callable[[], list[int]]) -> None:
        self._pids = pids
        self._server_s, self._generator_s, self._busy_s = cpu_s(pids()), own_cpu_s(), busy_cpu_s()
        self._began = time.perf_counter()

    def stop(self, done: int) -> dict[str, float]:
        wall_s = time.perf_counter() - self._began
        server_s = cpu_s(self._pids()) - self._server_s
        generator_s = own_cpu_s() - self._generator_s
        others_s = max(0.0, busy_cpu_s() - self._busy_s - server_s - generator_s)
        figures = {
            "count": float(done),
            "rate": done / wall_s,
            "server": server_s / wall_s * 100,
            "generator": generator_s / wall_s * 100,
            "other": others_s / wall_s * 100,
        }
        if server_s >= 2 / TICKS_PER_SECOND:  # below, the clock's tick is the figure
            figures["per_cpu"] = done / server_s
        return figures
