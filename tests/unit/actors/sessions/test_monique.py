"""MoniqueSession: how much of one connection may be under way."""

from tests.helpers.monique.by_hand import HandMonique, subscribe
from wakeq.actors.monique.counters import MoniqueCounters
from wakeq.actors.monique.exchange import MoniqueExchange, Rules
from wakeq.actors.runtime import Runtime
from wakeq.actors.sessions.door import IN_FLIGHT_BYTES_MAX, Received


def test_reading_pauses_for_what_has_no_answer_yet_and_for_nothing_that_was_answered() -> None:
    runtime, counters = Runtime(), MoniqueCounters(lambda: 0)
    exchange = runtime.spawn(MoniqueExchange, Rules(), None, lambda: 0, counters)
    client = HandMonique(runtime, exchange, runtime.run_until_idle, counters)
    half = Received([subscribe("a_b data")], IN_FLIGHT_BYTES_MAX // 2 + 1)

    paused = []
    for reads in (1, 1, 2, 1):
        for _ in range(reads):
            client.process.on_receive(half)
        paused.append(client.door.paused)
        runtime.run_until_idle()
        paused.append(client.door.paused)

    assert len(client.take()) == 5
    assert paused == [False, False, False, False, True, False, False, False]
