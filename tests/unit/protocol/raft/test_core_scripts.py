"""Scripts: scenes of the consensus core with their recorded traces, in `scripts/`; one for each pitfall and bug."""

from pathlib import Path

import pytest

from tests.helpers.raft.script import replay

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_script_gives_its_recorded_trace(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    played = replay(text)

    assert played == text


def test_scripts_cover_every_pitfall_of_the_core() -> None:
    pitfalls = {path.stem.split("_")[0] for path in SCRIPTS}

    assert pitfalls >= {f"r{number}" for number in range(1, 13)} | {"t1", "t4"}
    assert len(SCRIPTS) >= 40
