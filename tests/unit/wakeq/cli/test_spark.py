"""The progress line of Spark."""

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from wakeq.cli import spark as module


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


def test_progress_line_counts_the_parts_of_all_stages(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REFRESH_S", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    over = threading.Event()
    tracker = Tracker(over, {}, {1: (3, 8), 2: (0, 2)}, {1: (3, 8), 2: (0, 2)}, {2: None})
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))

    module._show_stages(session, "counting", over)

    assert capsys.readouterr().err == "\r\x1b[Kcounting, 3 of 10 parts ..."


def test_progress_line_ends_without_a_word_if_spark_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command reports that in one line; a thread would print a traceback besides."""
    protocol = pytest.importorskip("py4j.protocol", reason="pyspark is not installed")

    def died() -> list[int]:
        raise protocol.Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(module, "REFRESH_S", 0)
    tracker = SimpleNamespace(getActiveStageIds=died)
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))

    module._watch(session, "counting", threading.Event())
