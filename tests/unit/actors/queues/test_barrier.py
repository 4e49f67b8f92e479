"""What is asked of several queues together has one answer, the same on every node."""

from itertools import permutations

from wakeq.actors.queues.barrier import Barrier
from wakeq.protocol.log.entries import Ack, Result


def test_of_several_refusals_that_of_the_first_part_counts_whoever_answers_first() -> None:
    verdicts = [(0, Result.UNKNOWN), (1, Result.QUEUE_FULL), (2, 0)]

    for order in permutations(verdicts):
        barrier = Barrier((1, 1, 0, Ack("q", 1, [1], [(0, 0)]), None), {})
        for place, code in order:
            barrier.judged(place, code)
        assert barrier.code == Result.UNKNOWN


def test_what_nobody_refuses_is_done() -> None:
    barrier = Barrier((1, 1, 0, Ack("q", 1, [1], [(0, 0)]), None), {})

    barrier.judged(0, Result.DONE)

    assert barrier.code == 0
