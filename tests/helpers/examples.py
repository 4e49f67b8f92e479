"""How often a property is tried: a little in `make check` and `make test`, as often as it says in `make prove`.

examples(120) --> 120, or 18 with the profile `quick` of Hypothesis        seeds(2, of=8) --> 8 seeds, all but 2 `long`
"""

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings

FULL = 100  # the number of examples of Hypothesis, when nothing is said
QUICK = 15
LEAST = 5


def examples(count: int) -> int:
    """So many, or their part in a quick run."""
    return max(LEAST, count * settings().max_examples // FULL)


def seeds(few: int, *, of: int) -> list[int | ParameterSet]:
    """Return the seeds of a test that is parametrized by them; those behind the first few are left to `make prove`."""
    return [*range(few), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(few, of))]
