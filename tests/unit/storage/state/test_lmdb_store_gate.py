"""Gate: no visitor is inside while it is closed."""

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from wakeq.storage.state.lmdb_store import Gate


@pytest.mark.parametrize("close", [lambda gate: gate.closed(0.0), Gate.closed_if_empty], ids=["closed", "if empty"])
def test_visitor_of_a_closed_gate_waits_until_it_opens(
    close: Callable[[Gate], AbstractContextManager[object]],
) -> None:
    gate = Gate()
    passed = threading.Event()

    def come() -> None:
        with gate.passed():
            passed.set()

    visitor = threading.Thread(target=come)
    with close(gate):
        visitor.start()
        # Wait until the visitor is waiting.
        while not gate._changed._waiters:  # type: ignore[attr-defined]
            os.sched_yield()
        assert not passed.is_set()
    visitor.join(30)

    assert passed.is_set()


def test_gate_closes_after_the_last_visitor_has_left() -> None:
    gate = Gate()
    inside = threading.Event()
    seen: list[str] = []

    def visit() -> None:
        with gate.passed():
            inside.set()
            while not gate._is_closed:
                os.sched_yield()
            seen.append("left")

    visitor = threading.Thread(target=visit)
    visitor.start()
    inside.wait(30)

    def close() -> None:
        with gate.closed(threading.TIMEOUT_MAX):
            seen.append("closed")

    closer = threading.Thread(target=close, daemon=True)
    closer.start()
    visitor.join(30)
    closer.join(30)

    assert seen == ["left", "closed"]


def test_closed_if_empty_does_not_close_around_a_visitor() -> None:
    gate = Gate()

    with gate.passed():
        with gate.closed_if_empty() as is_closed:
            assert not is_closed
        # The gate is still open.
        with gate.passed():
            pass

    with gate.closed_if_empty() as is_closed:
        assert is_closed
