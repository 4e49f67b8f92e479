"""TermRuns: the runs say of every entry the same as a list with the term of each entry."""

import random

import pytest

from wakeq.storage.log.term_runs import TermRuns

STEPS = 200


@pytest.mark.parametrize("seed", range(10))
def test_runs_after_any_changes_agree_with_a_list_of_terms(seed: int) -> None:
    chance = random.Random(seed)
    runs = TermRuns(0, 0)
    terms = {0: 0}  # of the entry before the first one, and of each entry that is kept
    next_index = term = 1

    for _ in range(STEPS):
        match chance.choice(["append", "append", "remove below", "truncate"]):
            case "append":
                count = chance.randint(1, 4)
                runs.append(next_index, term)
                terms |= dict.fromkeys(range(next_index, next_index + count), term)
                next_index += count
                term += chance.randint(0, 1)
            case "remove below":
                first = chance.choice(list(terms))
                runs.remove_below(first)
                terms = {index: kept for index, kept in terms.items() if index >= first}
            case "truncate" if len(terms) > 1:
                next_index = chance.choice(list(terms)[1:])
                runs.truncate_from(next_index)
                terms = {index: kept for index, kept in terms.items() if index < next_index}

        assert {index: runs.at(index) for index in terms} == terms
        assert len(runs._starts) == len(set(terms.values()))
        first, last = sorted(chance.choices(list(terms), k=2))
        between = [(i, terms[i]) for i in range(first, last + 1) if i == first or terms[i] != terms[i - 1]]
        assert runs.between(first, last) == between


def test_runs_between_an_end_and_a_later_beginning_are_none() -> None:
    assert TermRuns(0, 1).between(4, 3) == []
