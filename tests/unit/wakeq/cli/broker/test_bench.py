"""`wakeq bench`: the shares of the connections, and the figures of a row."""

import pytest

from wakeq.cli.broker.bench import Load, result_row


@pytest.mark.parametrize(("messages", "connections"), [(10, 4), (3, 8), (1, 1)])
def test_shares_add_up_to_all_messages(messages: int, connections: int) -> None:
    shares = Load(messages, b"", batch=1, connections=connections).shares()

    assert (sum(shares), len(shares)) == (messages, connections)
    assert max(shares) - min(shares) <= 1


def test_result_row_has_the_rate_and_the_latencies() -> None:
    spans_s = [0.001 * number for number in range(1, 102)]

    assert result_row("publish", 1_000, 2.0, spans_s) == ("publish", 1_000, 500, 51.0, 100.0)
