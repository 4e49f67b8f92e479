"""The table of pitfalls in docs/internals/raft.md names tests that exist, for every pitfall."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "tests/unit/protocol/raft/scripts"
ROW = re.compile(r"^\| ([DT]\d) .*? \| (.*) \|$", re.MULTILINE)
NAMED = re.compile(r"`(tests/[\w/.]+)(?:::(\w+))?`")


def test_every_pitfall_of_disks_and_of_time_has_a_test_that_exists() -> None:
    rows = dict(ROW.findall((ROOT / "docs/internals/raft.md").read_text(encoding="utf-8")))

    missing = [
        f"{pitfall}: {path}::{name}"
        for pitfall, proofs in rows.items()
        for path, name in NAMED.findall(proofs)
        if not (ROOT / path).exists() or (name and f"def {name}(" not in (ROOT / path).read_text(encoding="utf-8"))
    ]

    assert list(rows) == ["D1", "D2", "D3", "D4", "D5", "T1", "T2", "T3", "T4", "T5"]
    assert all(NAMED.search(proofs) for proofs in rows.values())
    assert missing == []


def test_every_pitfall_of_raft_has_a_script() -> None:
    begun = {path.name.partition("_")[0] for path in SCRIPTS.glob("r*.txt")}

    assert begun == {f"r{number}" for number in range(1, 13)}
