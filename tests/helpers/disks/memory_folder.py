"""A folder in memory for a while: a sync costs nothing there; what a real disk does is proved elsewhere."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = "/dev/shm"


@contextmanager
def memory_folder() -> Iterator[Path]:
    """Make one, and remove it with all that is in it; on the disk where there is no such memory."""
    with tempfile.TemporaryDirectory(prefix="wakeq-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        yield Path(folder)
