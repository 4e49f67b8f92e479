"""Minimise: find the faults that a failing run needs.

    seed, mode --> the acts of the nemesis that can be skipped without making the run succeed

Half of the remaining acts are skipped at a time, then a quarter, down to single acts.  The final failure may be another
invariant than the first one; a bug usually breaks several.
"""

from tests.simulation.run import Mode, Outcome, simulate


def minimise(seed: int, mode: Mode) -> tuple[frozenset[int], Outcome]:
    """Return the acts to be skipped, and the failing run without them."""
    outcome = simulate(seed, mode)
    assert outcome.failure, f"seed {seed} does not fail"
    skip: frozenset[int] = frozenset()
    size = max(1, outcome.acts // 2)
    while size:
        left = [act for act in range(outcome.acts) if act not in skip]
        for start in range(0, len(left), size):
            tried = simulate(seed, mode, skip=skip | set(left[start : start + size]))
            if tried.failure:
                skip, outcome = skip | set(left[start : start + size]), tried
        size //= 2
    return frozenset(act for act in skip if act < outcome.acts), outcome
