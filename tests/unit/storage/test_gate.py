"""Gate: nobody is inside while it is closed."""

import threading

from wakeq.storage.gate import Gate


def test_whoever_comes_while_it_is_closed_waits_until_it_opens() -> None:
    gate = Gate()
    passed = threading.Event()

    def come() -> None:
        with gate.passed():
            passed.set()

    visitor = threading.Thread(target=come)
    with gate.closed(0.0):
        visitor.start()
        assert not passed.is_set()
    visitor.join(30)

    assert passed.is_set()


def test_it_does_not_close_around_somebody_unless_it_is_said_how_long_to_wait() -> None:
    gate = Gate()

    with gate.passed():
        with gate.closed_if_empty() as is_closed:
            assert not is_closed
        with gate.passed():  # it has stayed open
            pass

    with gate.closed_if_empty() as is_closed:
        assert is_closed
