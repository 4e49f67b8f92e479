"""Connections to brokers, one for each process and address: Spark uses its Python workers again and again.

A worker that was forked makes its own; a client that was lost with its broker connects again by itself.
"""

import os

from wakeq.client.bulk import BulkClient

_clients: dict[tuple[int, str], BulkClient] = {}


def client_of(address: str) -> BulkClient:
    """Return this process's client of a broker."""
    key = os.getpid(), address
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = BulkClient(address)
    return client
