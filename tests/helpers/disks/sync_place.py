"""Where a lone node syncs its log: on its event loop, or in the thread, however fast the disk of the tests is.

sync_on_loop(monkeypatch, lambda: True)
"""

import math
from collections.abc import Callable

import pytest

from wakeq.actors.log.writer import SyncPlace


def sync_on_loop(monkeypatch: pytest.MonkeyPatch, decide: Callable[[], bool]) -> None:
    """Have each sync done on the loop if `decide` says so at that moment, else in the thread."""
    place = property(lambda _: -math.inf if decide() else math.inf, lambda _, value: None)
    monkeypatch.setattr(SyncPlace, "loop_from_s", place, raising=False)
