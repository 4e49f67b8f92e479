"""The figures without sockets: every cell is answered in full, and a refusal is not taken for an answer."""

import dataclasses

import pytest

from bench.counting import rounds
from bench.hand.loop import End, HandLoop


@pytest.mark.parametrize("cell", rounds.CELLS, ids=lambda cell: cell.title)
def test_tiny_cell_gives_a_cost_for_each_round(cell: rounds.Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "CYCLES_MIN", 2)
    tiny = dataclasses.replace(cell, connections=min(cell.connections, 3), queues=min(cell.queues, 2))

    costs = rounds.cost_of(tiny, seconds=0)

    assert len(costs) in (1, len(rounds.KINDS))
    assert all(cost > 0 for cost in costs)


def test_message_that_comes_is_held_with_its_own_lease() -> None:
    connection = rounds.Connection(End(HandLoop(), None, 1), "q")
    connection.end.write(b'{"cmd":"ok","qname":"q","uid":"u1"}\n{"cmd":"msg","qname":"q","uid":"u2","lease":"1-7"}\n')

    answers = connection.take()

    assert answers == 2
    assert connection.held == [b'{"cmd":"ACK","qname":"q","uid":"u2","lease":"1-7"}\n']


@pytest.mark.parametrize("refusal", [b'{"cmd":"nok","err":"BUSY"}\n', b'{"cmd":"nomsg","qname":"q"}\n'])
def test_refusal_ends_the_measurement(refusal: bytes) -> None:
    connection = rounds.Connection(End(HandLoop(), None, 1), "q")
    connection.end.write(refusal)

    with pytest.raises(AssertionError):
        connection.take()
