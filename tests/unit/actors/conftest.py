"""Brokers and clusters in memory for the tests of the actors."""

from tests.helpers.brokers.fixtures import (
    broker,
    client,
    cluster,
    directory,
    flux,
    leader,
    place,
    poison,
    small_steps,
    worker,
)

__all__ = ["broker", "client", "cluster", "directory", "flux", "leader", "place", "poison", "small_steps", "worker"]
