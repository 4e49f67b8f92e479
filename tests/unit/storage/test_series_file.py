"""SeriesFile: the same series after a write, and nothing but a line in the log for anything that is wrong."""

from pathlib import Path

import pytest

from wakeq.protocol.log.format import Identity
from wakeq.protocol.series import DAY_S, STEP_S, Look, Series
from wakeq.storage import series_file
from wakeq.storage.series_file import HEADER, NAME, SeriesFile

AT_S = 1_800_000_000
ME = Identity(bytes(range(16)), 3)


def filled(span_s: int, first: int) -> Series:
    series = Series(span_s) if span_s == DAY_S else Series()
    for place in range(40):
        at_s = AT_S + place * STEP_S
        series.take(at_s, Look((place * first, 0, 0, 0), (first + place, 0, 0)))
    return series


def shown(series: Series) -> str:
    return str([series.answer(step_s, DAY_S) for step_s in (10, 300)])


def written(path: Path) -> tuple[SeriesFile, Series, dict[str, Series]]:
    file = SeriesFile(path, ME)
    node, queues = filled(DAY_S, 5), {"": filled(1_800, 1), "jobs/ä": filled(1_800, 2)}
    file.write(node, queues)
    return file, node, queues


def test_series_are_the_same_after_a_restart(tmp_path: Path) -> None:
    file, node, queues = written(tmp_path)

    found = SeriesFile(tmp_path, ME).read()

    assert found is not None
    assert shown(found[0]) == shown(node)
    assert {name: shown(series) for name, series in found[1].items()} == {n: shown(s) for n, s in queues.items()}
    found[0].take(AT_S + 40 * STEP_S, Look((0, 0, 0, 0), (99, 0, 0)))
    assert "99.0" in shown(found[0]), "they go on"
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_missing_file_is_no_reason_for_a_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = SeriesFile(tmp_path, ME).read()

    assert (found, caplog.messages) == (None, [])


@pytest.mark.parametrize("cut", [0, 3, HEADER.size - 1, HEADER.size, HEADER.size + 5, -1])
def test_file_that_was_cut_is_thrown_away_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cut: int
) -> None:
    file, *_ = written(tmp_path)
    file.path.write_bytes(file.path.read_bytes()[:cut])

    found = file.read()

    assert found is None
    assert len(caplog.messages) == 1
    assert str(file.path) in caplog.messages[0]
    assert "the charts begin anew" in caplog.messages[0]


@pytest.mark.parametrize("place", [0, 4, 8, 24, 28, HEADER.size, 100, -1])
def test_file_with_another_byte_is_thrown_away(tmp_path: Path, place: int) -> None:
    file, *_ = written(tmp_path)
    data = bytearray(file.path.read_bytes())
    data[place] ^= 1
    file.path.write_bytes(data)

    assert file.read() is None


@pytest.mark.parametrize("other", [Identity(bytes(16), 3), Identity(bytes(range(16)), 4)])
def test_file_of_another_node_is_thrown_away(tmp_path: Path, caplog: pytest.LogCaptureFixture, other: Identity) -> None:
    written(tmp_path)

    found = SeriesFile(tmp_path, other).read()

    assert found is None
    assert "it is of another node" in caplog.text


def test_file_whose_rings_have_other_lengths_is_thrown_away(tmp_path: Path) -> None:
    file = SeriesFile(tmp_path, ME)

    file.write(Series(), {})

    assert file.read() is None


def test_write_that_fails_is_logged_once_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, node, queues = written(tmp_path)
    before = file.path.read_bytes()

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(series_file, "replace_durably", full)
        for _ in range(3):
            file.write(node, queues)
    kept = file.path.read_bytes()
    file.write(node, {})

    assert len(caplog.messages) == 1
    assert kept == before
    assert file.path.read_bytes() != before
