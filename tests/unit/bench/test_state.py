"""The benchmark of the state store measures what it says, on a tiny one."""

from pathlib import Path

import pytest

from bench import state
from wakeq.storage.state.lmdb_store import StateStore
from wakeq.storage.state.store import MESSAGES


def test_tiny_run_gives_every_figure_and_leaves_an_empty_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, small in (("RECORDS", 3_000), ("TOGETHER", 1_000), ("SWEPT", 1_500), ("READS", 3)):
        monkeypatch.setattr(state, name, small)

    rows = dict(state.measure(tmp_path / "state"))

    assert [what.split(",")[0] for what in rows] == [
        "put", "on disk", "on disk", "`get_many` of 256 in a row", "sweep of 1", "delete",
    ]  # fmt: skip
    store = StateStore.open(tmp_path / "state", cluster_id=b"bench".ljust(16), node_id=1)
    assert store.stats().records[MESSAGES] == 0
    store.close()
