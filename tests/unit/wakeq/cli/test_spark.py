"""The progress line of Spark."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from wakeq.cli import spark as module
from wakeq.cli.progress import Progress


class Tracker:
    """A status tracker with these numbers of finished tasks; after the last one the work is over."""

    def __init__(self, over: threading.Event, *looks: dict[int, tuple[int, int] | None]) -> None:
        self._over = over
        self._looks = list(looks)
        self._stages: dict[int, tuple[int, int] | None] = {}

    def getActiveStageIds(self) -> list[int]:  # noqa: N802
        self._stages = self._looks.pop(0)
        if not self._looks:
            self._over.set()
        return list(self._stages)

    def getStageInfo(self, stage: int) -> SimpleNamespace | None:  # noqa: N802
        found = self._stages[stage]
        return None if found is None else SimpleNamespace(numCompletedTasks=found[0], numTasks=found[1])


class Recorder(Progress):
    """Records what would be shown."""

    def __init__(self) -> None:
        super().__init__("counting", "parts", is_wanted=False)
        self.updates: list[tuple[int, int | None]] = []

    def update(self, done: int, total: int | None = None) -> None:
        self.updates.append((done, total))


def test_progress_line_counts_the_parts_of_all_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH_S", 0)
    over = threading.Event()
    tracker = Tracker(over, {}, {1: (3, 8), 2: (0, 2)}, {1: (8, 8), 2: (0, 2)}, {2: None})
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))

    shown = Recorder()
    module._show_stages(session, shown, over)

    assert shown.updates == [(3, 10), (8, 10)]


def test_progress_line_ends_without_a_word_if_spark_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command reports that in one line; a thread would print a traceback besides."""
    protocol = pytest.importorskip("py4j.protocol", reason="pyspark is not installed")

    def died() -> list[int]:
        raise protocol.Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(module, "REFRESH_S", 0)
    tracker = SimpleNamespace(getActiveStageIds=died)
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))

    module._watch(session, Recorder(), threading.Event())
