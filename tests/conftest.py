"""Makes the profiles of Hypothesis known before anything is collected: patient, and `--hypothesis-profile quick`.

A busy machine is no fault of a test: in both of them no example is too slow.
"""

import gc

from hypothesis import HealthCheck, settings

from tests.helpers.examples import QUICK

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", parent=settings.get_profile("patient"), max_examples=QUICK)
settings.load_profile("patient")


def pytest_collection_finish() -> None:
    """Keep what was imported and collected from every later look of the garbage collector: there is a lot of it."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let the garbage collector look again: at the end, DuckDB lists its objects that nobody has collected."""
    gc.unfreeze()
