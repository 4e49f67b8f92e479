"""MoniQue's config.json: the parts that the broker uses, their defaults, and the errors of an invalid file."""

import json
from pathlib import Path
from typing import Any

import pytest

from wakeq.cli import main
from wakeq.config.monique import MoniqueConfig, SchedulerEnd, WebSocket, read_config
from wakeq.protocol.errors import BadSettings

EXAMPLE = Path(__file__).parents[4] / "examples" / "monique" / "config.json"


def test_client_connects_locally_to_a_server_on_all_addresses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"deploy": {"monique": {"websocket": {"host": "*", "port": 1}}}}')

    assert main(["monique", "-f", str(path), "listen"]) != 0

    assert "127.0.0.1:1" in capsys.readouterr().err


def test_example_file_is_read_completely() -> None:
    config = read_config(EXAMPLE)

    assert config == MoniqueConfig(
        SchedulerEnd("127.0.0.1", 9000, 9024),
        SchedulerEnd("127.0.0.1", 9001, 9025),
        WebSocket("127.0.0.1", 9160),
        "127.0.0.1",
        frozenset(),
        {"example_calculator": 10000},
    )
    assert config.wants_zeromq


@pytest.mark.parametrize("text", ["{}", '{"build": 1}', '{"deploy": {"monique": {}}, "params": {"radio": 1}}'])
def test_file_without_known_parts_gives_the_defaults(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)

    config = read_config(tmp_path / "config.json")

    assert config == MoniqueConfig()
    assert not config.wants_zeromq


def test_allowed_specs_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"params": {"scheduler-logic": {"allow-messages": ["a_b", "error"]}}}')

    assert read_config(tmp_path / "config.json").allow_messages == {"a_b", "error"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "truncated"),
        ({"deploy": {"monique": {"websocket": {"host": "a", "port": 99999}}}}, "<= 65535"),
        ({"deploy": {"monique": {"scheduler-in": {"host": "a", "comport": 1}}}}, "techport"),
        ({"params": {"mq_controller": {"connections": {"a_b": "1"}}}}, "connections"),
        ({"params": {"scheduler-logic": {"allow-messages": "all"}}}, "allow-messages"),
    ],
)
def test_invalid_file_is_named_with_the_place_of_the_error(tmp_path: Path, content: Any, words: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))

    with pytest.raises(BadSettings, match=words) as refusal:
        read_config(path)
    assert str(path) in str(refusal.value)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="No such file"):
        read_config(tmp_path / "config.json")
