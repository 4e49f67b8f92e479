"""Crew: who has what, and whose turn it is."""

from tests.helpers.steps import Counted, steps
from wakeq.actors.monique.crew import Crew, Out
from wakeq.protocol.queue.outcomes import Delivery


def out(task_id: str, until_ms: int = 1_000) -> Out:
    return Out(task_id, Delivery("uid", 0, 0, b"", (1, 1), 0, b"", 3, 1, until_ms))


def turns(crew: Crew) -> list[int]:
    return list(crew.in_turn())


def test_component_idle_for_longest_is_next() -> None:
    crew = Crew()
    assert crew.meet([1, 2, 3]) == []

    crew.give(1, out("a"))
    crew.give(2, out("b"))
    assert [one.task_id for one in crew.end("b")] == ["b"]
    crew.end("a")

    assert turns(crew) == [3, 2, 1]
    assert (crew.out, crew.next_end_ms) == (0, None)


def test_tasks_of_components_that_are_gone_are_lost() -> None:
    crew = Crew()
    crew.meet([1, 2, 3])
    crew.give(1, out("a"))
    crew.give(2, out("a"))

    assert crew.meet([2, 4]) == [out("a")]

    assert turns(crew) == [4]
    assert crew.end("a") == [out("a")]
    assert crew.end("a") == []
    assert turns(crew) == [4, 2]


def test_component_whose_lease_timed_out_is_last_until_it_has_answered() -> None:
    crew = Crew()
    crew.meet([1, 2])
    crew.give(1, out("a", until_ms=10))
    crew.give(2, out("b", until_ms=20))
    assert crew.next_end_ms == 10

    assert crew.expire(15) == [out("a", until_ms=10)]
    crew.end("b")
    crew.meet([1, 2, 3])

    assert turns(crew) == [2, 3, 1]
    crew.give(1, out("c"))
    crew.end("c")
    assert turns(crew) == [2, 3, 1]
    crew.meet([2, 3])
    crew.meet([1, 2, 3])
    assert turns(crew) == [2, 3, 1]


def test_answer_costs_the_same_however_many_components_there_are() -> None:
    def cost(components: int) -> int:
        crew = Crew()
        crew.meet(map(Counted, range(components)))
        for number in map(Counted, range(components)):
            crew.give(number, out(f"t{number}"))

        def answer_some() -> None:
            for number in map(Counted, range(components - 10, components)):
                crew.end(f"t{number}")
                crew.give(number, out(f"t{number}"))

        return steps(answer_some)

    assert cost(500) == cost(10)
