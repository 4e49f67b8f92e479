"""Which node says that its cluster clock differs from the wall clock, and when."""

import logging
from pathlib import Path

import pytest

from tests.helpers.node_here import node_here, run
from wakeq.actors.mail import Refusal

REFUSED = Refusal("NOT_LEADER", "another one leads")


def warned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, serves: bool
) -> list[str]:
    """Return what a node logs of its clock when the process has stood still for 13 s."""

    async def story() -> None:
        async with node_here(tmp_path / "data") as here:
            node = here.node
            clock = node.clock
            wall_ms, monotonic_ms = clock.wall_ms(), clock.monotonic_ms()
            with monkeypatch.context() as patch:
                patch.setattr(clock, "wall_ms", lambda: wall_ms + 15_000)
                patch.setattr(clock, "monotonic_ms", lambda: monotonic_ms + 15_000)
                patch.setattr(node.raft_log, "refusal", lambda: None if serves else REFUSED)
                node._time.now_ms()
                node._look_at_step()

    with caplog.at_level(logging.WARNING, "wakeq.node"):
        run(story())
    return [record.getMessage() for record in caplog.records if "cluster clock" in record.getMessage()]


def test_node_that_serves_says_once_by_how_much_its_clock_lags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (text,) = warned(tmp_path, monkeypatch, caplog, serves=True)

    assert "ms ahead of the cluster clock" in text
    assert "restart" not in text


def test_node_that_does_not_serve_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert warned(tmp_path, monkeypatch, caplog, serves=False) == []
