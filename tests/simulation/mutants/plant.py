"""Plant: gives all nodes a bug for a while.

    name --> patches of classes and modules, applied for one run and removed again

The product has no switch for any of these bugs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Patch = tuple[Any, str, Any]  # class or module, name of the attribute, its replacement
Maker = Callable[[], list[Patch]]
MUTANTS: dict[str, Maker] = {}  # the seeds must find each of these
RARE: dict[str, Maker] = {}  # these need a coincidence that is rare among seeds: the scripts must find them


def mutant(function: Maker) -> Maker:
    MUTANTS[function.__name__] = function
    return function


def rare(function: Maker) -> Maker:
    RARE[function.__name__] = function
    return function


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Give all nodes this bug during the block."""
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
