"""The exchange against a naive model, and that its cost is that of who gets a message, not of who subscribes."""

import gc
import tracemalloc
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.steps import steps
from wakeq.protocol.wire.monique.exchange import ANY, SUBSCRIPTIONS_MAX, Exchange, Subscription, TooManySubscriptions

SPECS = ("a_b", "a_c", "a_", "error")
TYPES = ("config", "result")
HALVES = st.sampled_from((*SPECS, ANY, "a_*"))
SUBSCRIPTIONS = st.lists(
    st.builds(Subscription, HALVES, st.sampled_from((*TYPES, ANY))) | st.builds(Subscription, HALVES, HALVES),
    max_size=5,
)
STEPS = st.tuples(st.sampled_from(("subscribe", "unsubscribe", "leave")), st.integers(0, 3), SUBSCRIPTIONS)


class Model:
    """A set of pairs for each subscriber, all of them asked for each message."""

    def __init__(self) -> None:
        self.pairs: dict[int, set[tuple[str, str]]] = {}

    def step(self, verb: str, subscriber: int, subscriptions: list[Subscription]) -> None:
        pairs = {(subscription.spec, subscription.type) for subscription in subscriptions}
        own = self.pairs.setdefault(subscriber, set())
        match verb:
            case "subscribe":
                own |= pairs
            case "unsubscribe":
                own -= pairs
            case "leave":
                own.clear()

    def subscribers(self, spec: str, type: str) -> set[int]:
        return {
            subscriber
            for subscriber, pairs in self.pairs.items()
            if any(pair[0] in (spec, "*") and pair[1] in (type, "*") for pair in pairs)
        }


def step(exchange: Exchange[int], verb: str, subscriber: int, subscriptions: list[Subscription]) -> None:
    match verb:
        case "subscribe":
            exchange.subscribe(subscriber, subscriptions)
        case "unsubscribe":
            exchange.unsubscribe(subscriber, subscriptions)
        case "leave":
            exchange.leave(subscriber)


def named(count: int) -> list[Subscription]:
    return [Subscription(f"spec_{number}", "config") for number in range(count)]


@given(st.lists(STEPS, max_size=15))
def test_subscribers_of_a_message_are_those_of_a_naive_model_after_any_history(
    steps: list[tuple[str, int, list[Subscription]]],
) -> None:
    exchange, model = Exchange[int](), Model()
    for verb, subscriber, subscriptions in steps:
        step(exchange, verb, subscriber, subscriptions)
        model.step(verb, subscriber, subscriptions)

        assert exchange.size == sum(map(len, model.pairs.values()))
        assert exchange.count_of(subscriber) == len(model.pairs[subscriber])
        for spec in (*SPECS, ANY):  # a star may be sent as well, and means nothing then
            for type in TYPES:
                found = exchange.subscribers(spec, type)
                assert set(found) == model.subscribers(spec, type)
                assert len(set(found)) == len(found)


# Every way to be subscribed to (s, config) and every way to miss it: small enough that all histories are counted off.
PAIRS = [
    *[Subscription(spec, type) for spec in ("s", ANY) for type in ("config", ANY)],
    Subscription("s_*", ANY),
    Subscription("t", "config"),
]
MESSAGES = [(spec, type) for spec in ("s", "t", "s_*", "s_t", ANY) for type in ("config", "result")]
SUBSETS = [[pair for place, pair in enumerate(PAIRS) if chosen >> place & 1] for chosen in range(1 << len(PAIRS))]


def check_all_messages(exchange: Exchange[int], model: Model) -> None:
    for spec, type in MESSAGES:
        found = exchange.subscribers(spec, type)
        assert sorted(found) == sorted(model.subscribers(spec, type)), (spec, type)
    assert exchange.size == sum(map(len, model.pairs.values()))


def test_short_histories_of_two_subscribers_match_a_naive_model() -> None:
    changes = [("subscribe", [pair]) for pair in PAIRS] + [("unsubscribe", [pair]) for pair in PAIRS] + [("leave", [])]
    steps = [(verb, subscriber, pairs) for verb, pairs in changes for subscriber in (0, 1)]

    for history in product(steps, repeat=3):
        exchange, model = Exchange[int](), Model()
        for verb, subscriber, pairs in history:
            step(exchange, verb, subscriber, pairs)
            model.step(verb, subscriber, pairs)
        check_all_messages(exchange, model)


@pytest.mark.parametrize("others", [[], PAIRS])
def test_subscriptions_less_any_other_set_match_a_naive_model(
    others: list[Subscription],
) -> None:
    for wanted, unwanted in product(SUBSETS, SUBSETS):
        exchange, model = Exchange[int](), Model()
        for verb, subscriber, pairs in (
            ("subscribe", 0, others), ("subscribe", 1, wanted), ("unsubscribe", 1, unwanted)
        ):  # fmt: skip
            step(exchange, verb, subscriber, pairs)
            model.step(verb, subscriber, pairs)
        check_all_messages(exchange, model)
        exchange.leave(1)
        model.step("leave", 1, [])
        check_all_messages(exchange, model)


def test_subscriber_that_matches_in_four_ways_gets_a_message_once() -> None:
    exchange = Exchange[str]()
    exchange.subscribe("x", [Subscription(spec, type) for spec in ("a", ANY) for type in ("data", ANY)])

    assert exchange.subscribers("a", "data") == ["x"]


def test_star_within_a_text_is_a_star() -> None:
    exchange = Exchange[str]()
    exchange.subscribe("x", [Subscription("example_*", ANY)])

    assert exchange.subscribers("example_clock", "data") == []
    assert exchange.subscribers("example_*", "data") == ["x"]


def test_unsubscribe_of_a_pair_never_subscribed_leaves_the_wildcard_that_covers_it() -> None:
    exchange = Exchange[str]()
    exchange.subscribe("x", [Subscription(ANY, ANY)])

    exchange.unsubscribe("x", [Subscription("a", "data")])
    exchange.unsubscribe("nobody", [Subscription("a", "data")])

    assert exchange.subscribers("a", "data") == ["x"]


def test_subscribers_come_in_the_order_in_which_they_subscribed() -> None:
    exchange = Exchange[str]()
    for name in "cabd":
        exchange.subscribe(name, [Subscription("a", "data")])
    exchange.subscribe("a", [Subscription("a", "data")])

    assert exchange.subscribers("a", "data") == ["c", "a", "b", "d"]


def test_subscriber_has_a_bounded_number_of_subscriptions() -> None:
    exchange = Exchange[str]()
    exchange.subscribe("x", named(SUBSCRIPTIONS_MAX))

    exchange.subscribe("x", named(SUBSCRIPTIONS_MAX))  # they are there already
    with pytest.raises(TooManySubscriptions, match="unsubscribe"):
        exchange.subscribe("x", [Subscription("one", "more"), Subscription("two", "more")])

    assert exchange.subscribers("one", "more") == []
    exchange.unsubscribe("x", named(1))
    exchange.subscribe("x", [Subscription("one", "more")])
    assert exchange.subscribers("one", "more") == ["x"]


def test_subscription_named_many_times_counts_once() -> None:
    exchange = Exchange[str]()

    exchange.subscribe("x", [Subscription("a", "data")] * (SUBSCRIPTIONS_MAX + 1))

    assert exchange.subscribers("a", "data") == ["x"]


def test_message_costs_no_more_with_many_subscriptions_than_with_a_hundred() -> None:
    def exchange_of(count: int) -> Exchange[int]:
        exchange = Exchange[int]()
        for subscriber in range(count // 100):
            exchange.subscribe(
                subscriber, [Subscription(f"spec_{subscriber * 100 + number}", "config") for number in range(100)]
            )
        for subscriber, subscription in enumerate((("spec_7", ANY), (ANY, "config"), (ANY, ANY))):
            exchange.subscribe(-1 - subscriber, [Subscription(*subscription)])
        return exchange

    few, many = exchange_of(100), exchange_of(10_000)
    assert few.subscribers("spec_7", "config") == many.subscribers("spec_7", "config") == [0, -1, -2, -3]

    assert steps(lambda: many.subscribers("spec_7", "config")) == steps(lambda: few.subscribers("spec_7", "config"))


@pytest.mark.parametrize("shared", [True, False], ids=["same subscriptions", "each its own"])
@pytest.mark.parametrize("leaves", [True, False], ids=["leave", "unsubscribe"])
def test_subscribers_without_subscriptions_are_forgotten(shared: bool, leaves: bool) -> None:
    wanted = {
        subscriber: [Subscription(f"spec_{0 if shared else subscriber}_{n}", "config") for n in range(20)]
        for subscriber in range(200)
    }
    exchange = Exchange[int]()
    tracemalloc.start()
    try:
        exchange.subscribe(-1, [Subscription(ANY, ANY)])
        before_bytes = tracemalloc.get_traced_memory()[0]
        for subscriber, subscriptions in wanted.items():
            exchange.subscribe(subscriber, subscriptions)
        full_bytes = tracemalloc.get_traced_memory()[0]
        for subscriber, subscriptions in wanted.items():
            exchange.leave(subscriber) if leaves else exchange.unsubscribe(subscriber, subscriptions)
        gc.collect()
        after_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    # The two outer tables keep their size, which is a small part of what was in them.
    assert after_bytes - before_bytes < (full_bytes - before_bytes) / 5
    assert exchange.subscribers("spec_0_7", "config") == [-1]
