"""Mutants: planted bugs, each of which must be found.  They prove that the simulation can find bugs.

planted(name) --> the nodes have that bug
"""

from tests.simulation.mutants import durability, elections, images, members, rare, replication, serving
from tests.simulation.mutants.plant import MUTANTS, RARE, planted

PLACES = (durability, elections, replication, serving, members, images, rare)
__all__ = ["MUTANTS", "PLACES", "RARE", "planted"]
