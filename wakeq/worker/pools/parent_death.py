"""kill_with_parent: makes the kernel kill this process when its parent ends, for whatever reason.

A worker calls this in the processes that it starts. When the worker is killed, its messages are redelivered, and the
work must not go on beside the next delivery. Only this process is killed, not the processes that it has started.
"""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1
# Loaded in advance: between fork and exec nothing may be loaded.
_libc = ctypes.CDLL(None, use_errno=True)


def kill_with_parent(parent: int) -> None:
    """Call this in the new process. The parent must not end the thread that started this process while it runs."""
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    # The parent may have ended before the call.
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
