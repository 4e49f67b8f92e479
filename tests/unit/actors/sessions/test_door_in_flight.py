"""What is under way on one connection: a batch is counted by its own bytes until the last of its commands is done."""

from hypothesis import given
from hypothesis import strategies as st

from wakeq.actors.sessions.door import Batches


def test_batch_counts_until_all_of_its_commands_are_done() -> None:
    batches = Batches()
    batches.add(3, 300)
    batches.add(1, 1_000)

    assert [batches.leave(left) for left in (4, 3, 2, 1, 0)] == [1_300, 1_300, 1_300, 1_000, 0]


def test_commands_of_before_the_first_batch_do_not_end_it() -> None:
    batches = Batches()
    batches.add(1, 1_000)

    assert batches.leave(100) == 1_000


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 1_000)), max_size=20), st.integers(0, 1_000))
def test_batches_have_never_less_than_the_commands_that_are_left(sizes: list[tuple[int, int]], left: int) -> None:
    batches = Batches()
    for commands, size_bytes in sizes:
        batches.add(commands, size_bytes)
    left = min(left, sum(commands for commands, _ in sizes))

    newest = 0
    needed_bytes = 0
    for commands, size_bytes in reversed(sizes):
        if newest >= left:
            break
        newest += commands
        needed_bytes += size_bytes

    assert batches.leave(left) == needed_bytes
