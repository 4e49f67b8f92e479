"""How often a property is tried: as often as it says in `make test`, a part of that in `make check`.

examples(120) --> 120, or 30 with the profile `quick` of Hypothesis
"""

from hypothesis import settings

FULL = 100  # the number of examples of Hypothesis, when nothing is said
QUICK = 25
LEAST = 5


def examples(count: int) -> int:
    """So many, or their part in a quick run."""
    return max(LEAST, count * settings().max_examples // FULL)
