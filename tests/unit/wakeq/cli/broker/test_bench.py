"""Proves wakeq/cli/bench: every message is somebody's share, and what the figures say."""

import pytest

from wakeq.cli.broker.bench import Load, figures


@pytest.mark.parametrize(("messages", "connections"), [(10, 4), (3, 8), (1, 1)])
def test_every_message_is_the_share_of_one_connection(messages: int, connections: int) -> None:
    shares = Load(messages, b"", batch=1, connections=connections).shares()

    assert (sum(shares), len(shares)) == (messages, connections)
    assert max(shares) - min(shares) <= 1


def test_a_row_has_the_rate_of_all_and_the_waits_of_each() -> None:
    spans_s = [0.001 * number for number in range(1, 102)]

    assert figures("publish", 1_000, 2.0, spans_s) == ("publish", 1_000, 500, 51.0, 100.0)
