"""Terms kept as runs say of every entry what a list with each entry's term would say."""

import random

import pytest

from wakeq.storage.log.term_runs import TermRuns

STEPS = 200


@pytest.mark.parametrize("seed", range(10))
def test_runs_say_what_a_list_of_all_terms_says(seed: int) -> None:
    chance = random.Random(seed)
    runs = TermRuns()
    terms: dict[int, int] = {}  # of each entry that is kept
    next_index = term = 1

    for _ in range(STEPS):
        match chance.choice(["append", "append", "forget below", "forget from"]):
            case "append":
                count = chance.randint(1, 4)
                runs.append(next_index, term)
                terms |= dict.fromkeys(range(next_index, next_index + count), term)
                next_index += count
                term += chance.randint(0, 1)
            case "forget below" if terms:
                first = chance.choice(list(terms))
                runs.forget_below(first)
                terms = {index: kept for index, kept in terms.items() if index >= first}
            case "forget from" if terms:
                next_index = chance.choice(list(terms))
                runs.forget_from(next_index)
                terms = {index: kept for index, kept in terms.items() if index < next_index}

        assert {index: runs.at(index) for index in terms} == terms
        assert len(runs._starts) <= len(set(terms.values())) + 1  # nothing is kept of what was forgotten
        if terms:
            first, last = sorted(chance.choices(list(terms), k=2))
            between = [(i, terms[i]) for i in range(first, last + 1) if i == first or terms[i] != terms[i - 1]]
            assert runs.between(first, last) == between


def test_between_an_end_and_a_later_beginning_there_is_nothing() -> None:
    assert TermRuns([(1, 1), (5, 2)]).between(4, 3) == []
