"""Each runner of tests takes ports of its own."""

from tests.helpers.network.ports import NOT_OUTGOING, free_port, free_ports, ports_of


def test_ports_belong_to_exactly_one_runner() -> None:
    ours = [set(ports_of(f"gw{number}", "3")) for number in range(3)]

    assert set.union(*ours) == set(NOT_OUTGOING)
    assert sum(map(len, ours)) == len(NOT_OUTGOING)


def test_single_runner_may_use_all_ports() -> None:
    assert ports_of("gw0", "1") == NOT_OUTGOING


def test_free_ports_are_as_many_as_were_asked_for() -> None:
    assert len(set(free_ports(5))) == 5


def test_port_is_not_given_to_two_programs() -> None:
    """Nobody listens on the first ones yet when the next ones are taken."""
    given = [free_port() for _ in range(300)] + free_ports(300)

    assert len(set(given)) == 600
