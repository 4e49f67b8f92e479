"""Plant: how a bug is put into the nodes for a while.

    name --> patches of classes and modules, put on for one run and taken off again

The product has no switch for any of them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Patch = tuple[Any, str, Any]  # where, which name, what stands there instead
Maker = Callable[[], list[Patch]]
MUTANTS: dict[str, Maker] = {}  # the seeds must find each of these
RARE: dict[str, Maker] = {}  # it takes a coincidence that seeds seldom make: the scripts must find these


def mutant(function: Maker) -> Maker:
    MUTANTS[function.__name__] = function
    return function


def rare(function: Maker) -> Maker:
    RARE[function.__name__] = function
    return function


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Let everybody have this bug for a while."""
    patches = (MUTANTS | RARE)[name]()
    assert all(hasattr(where, what) for where, what, _ in patches), f"{name} changes a method that does not exist"
    kept = [(where, what, vars(where).get(what)) for where, what, _ in patches]
    try:
        for where, what, instead in patches:
            setattr(where, what, instead)
        yield
    finally:
        for where, what, before in kept:
            setattr(where, what, before) if before is not None else delattr(where, what)
