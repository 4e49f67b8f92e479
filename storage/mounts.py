"""Mounts: the kind of file system of a path, and the reasons against keeping data there.

path, /proc/self/mounts --> warnings; none if the system does not tell
"""

from pathlib import Path

WARN_OF = {
    "nfs": "locks and syncs over a network cannot be trusted",
    "cifs": "locks and syncs over a network cannot be trusted",
    "smb": "locks and syncs over a network cannot be trusted",
    "9p": "locks and syncs over a network cannot be trusted",
    "fuse": "the effect of a sync depends on a program",
    "overlay": "it is a container's own layer, and ends with the container",
    "tmpfs": "it is memory, and ends with the machine's power",
}


def warnings_of(path: Path) -> list[str]:
    """Return the reasons against keeping data at this path."""
    kind = _kind_of_file_system(path)
    return [
        f"{path}: is on {kind}: {reason}; use a disk of this machine"
        for name, reason in WARN_OF.items()
        if kind.startswith(name)
    ]


def _kind_of_file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Return the type of the file system of path; "" if the system does not tell."""
    best, kind = "", ""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    real = str(path.resolve())
    for line in lines:
        _device, point, found, *_rest = line.split(" ")
        point = point.replace("\\040", " ")
        if (real == point or real.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, found
    return kind
