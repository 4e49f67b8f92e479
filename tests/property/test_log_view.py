"""LogView against a plain list of terms: any appends, truncations, cuts and comparisons."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from wakeq.protocol.raft.log_view import LogView
from wakeq.protocol.raft.messages import Runs

STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "term", "truncate", "cut"]), st.integers(0, 5), st.integers(0, 40_000)),
    max_size=30,
)


class Model:
    """Terms by index from 1 on, and where the kept ones begin."""

    def __init__(self) -> None:
        self.terms: list[int] = []
        self.sizes: list[int] = []
        self.cut = 0

    def runs(self, first: int, last: int) -> Runs:
        runs: list[tuple[int, int]] = []
        for index in range(first, last + 1):
            if not runs or runs[-1][1] != self.terms[index - 1]:
                runs.append((index, self.terms[index - 1]))
        return tuple(runs)


def played(steps: list[tuple[str, int, int]]) -> tuple[LogView, Model]:
    log, model, term = LogView(), Model(), 1
    for what, count, size in steps:
        last = len(model.terms)
        match what:
            case "append" if count:
                assert log.append(count, term, size * count) == last + 1
                model.terms += [term] * count
                model.sizes += [size] * count
            case "term":
                term += 1
            case "truncate" if last - count >= model.cut:
                log.truncate_from(last - count + 1)
                del model.terms[last - count :], model.sizes[last - count :]
                term = max([term, *model.terms])
            case "cut" if model.cut + count <= last:
                model.cut += count
                log.cut(model.cut)
    return log, model


@given(steps=STEPS)
@settings(max_examples=examples(300), deadline=None)
def test_terms_and_runs_of_a_view_match_its_entries(steps: list[tuple[str, int, int]]) -> None:
    log, model = played(steps)
    last = len(model.terms)

    assert (log.first_index, log.last_index) == (model.cut + 1, last)
    assert log.last_term == (model.terms[-1] if model.terms else 0)
    for index in range(model.cut, last + 2):
        expected = None if index > last else model.terms[index - 1] if index else 0
        assert log.term_at(index) == expected
    assert log.term_at(model.cut - 1) is None
    for first in range(model.cut + 1, last + 1):
        assert log.runs_between(first, last) == model.runs(first, last)


@given(steps=STEPS, others=STEPS)
@settings(max_examples=examples(300), deadline=None)
def test_logs_part_where_their_terms_first_differ(
    steps: list[tuple[str, int, int]], others: list[tuple[str, int, int]]
) -> None:
    log, model = played(steps)
    other = played([step for step in others if step[0] != "cut"])[1]
    first, last = model.cut + 1, len(other.terms)

    found = log.first_conflict(first, last, other.runs(first, last))

    both = range(first, min(last, len(model.terms)) + 1)
    assert found == next((index for index in both if model.terms[index - 1] != other.terms[index - 1]), None)


@given(steps=STEPS, limit=st.integers(0, 200_000))
@settings(max_examples=examples(300), deadline=None)
def test_sizes_add_up_and_a_message_takes_at_least_one_entry(steps: list[tuple[str, int, int]], limit: int) -> None:
    log, model = played(steps)

    sizes = [log.size_between(model.cut, index) for index in range(model.cut, len(model.terms) + 1)]

    assert sizes == sorted(sizes)
    for first in range(model.cut + 1, len(model.terms) + 1):
        last = log.last_within(first, limit)
        assert first <= last <= len(model.terms)
        assert last == first or log.size_between(first - 1, last) <= limit


@given(steps=STEPS)
@settings(max_examples=examples(200), deadline=None)
def test_ends_of_a_term_are_its_first_and_last_entry(steps: list[tuple[str, int, int]]) -> None:
    log, model = played(steps)
    kept = list(enumerate(model.terms, 1))[model.cut :]

    for index, term in kept:
        mates = [other for other, value in kept if value == term]
        assert (log.first_of_term_at(index), log.last_of_term(term)) == (mates[0], mates[-1])
    assert log.last_of_term(99) is None
