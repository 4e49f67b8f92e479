"""kill_with_parent: have the kernel end this process with the one that started it, however that ends.

For what a worker starts: when the worker is killed its messages go to others, and the work must not go on beside
them.  It ends this process alone, not what this one has started.
"""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)  # now, for after a fork there is no time for it


def kill_with_parent(parent: int) -> None:
    """To be called in the new process, which the parent's thread that started it must not leave behind alive."""
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:  # it was faster
        os.kill(os.getpid(), signal.SIGKILL)
