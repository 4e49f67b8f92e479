"""HangingDisk: a disk that answers no sync while a file is there, for one real process.

    folder --> prefix for its command --> hang() ... answer()

A small library in front of the C library's fsync and fdatasync, made with the C compiler of this machine.  Unlike a
traced process, one that hangs in it can be killed.
"""

import shutil
import subprocess
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void wait_for_disk(void) {
    const char *control = getenv("HANGING_DISK");
    struct timespec span = {0, 5000000};
    while (control && access(control, F_OK) == 0)
        nanosleep(&span, NULL);
}

static int sync_with(const char *name, int descriptor) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    wait_for_disk();
    return real(descriptor);
}

int fdatasync(int descriptor) { return sync_with("fdatasync", descriptor); }
int fsync(int descriptor) { return sync_with("fsync", descriptor); }
"""


def unavailable_reason() -> str:
    """Return why no disk can be made to hang here, or nothing if one can."""
    return "" if shutil.which("cc") else "a disk that hangs needs a C compiler, and there is none"


class HangingDisk:
    """See the head of this file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._control = folder / "hangs"
        source, library = folder / "disk.c", folder / "disk.so"
        source.write_text(SOURCE)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
        self.prefix = ("env", f"LD_PRELOAD={library}", f"HANGING_DISK={self._control}")

    def hang(self) -> None:
        """Let syncs that begin from now on not end."""
        self._control.touch()

    def answer(self) -> None:
        """Let all syncs end."""
        self._control.unlink()
