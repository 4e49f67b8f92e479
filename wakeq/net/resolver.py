"""Resolver: the addresses of host names, looked up anew for each connection.

    host, port --> addresses, or the OSError of the lookup

The loop's threads do the lookups.  A lookup that takes long goes on and serves the next asker, so a name server that
hangs has one question for each name.  Meanwhile, and while no name server answers, the addresses that were found last
are good enough: whoever connects to one makes the peer prove who it is.  A name that a name server does not know has no
address any more.  It must never stop the loop.
"""

import asyncio
import socket
from typing import Any

# For one asker to wait; the lookup itself may take longer.
LOOKUP_S_MAX = 1.0
# The name server did not answer, or its answer says nothing about the name.
NO_ANSWER = {socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_SYSTEM}

Host = tuple[str, int]


class Resolver:
    """Looks up any number of hosts, each once at a time."""

    def __init__(self) -> None:
        # The addresses of each host as its last lookup found them.
        self._found: dict[Host, list[str]] = {}
        # Lookups that go on.
        self._lookups: dict[Host, asyncio.Task[list[str]]] = {}

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host; raise OSError, or UnicodeError for a name that no host can have."""
        key = host, port
        lookup = self._lookups.get(key)
        if lookup is None:
            lookup = self._lookups[key] = asyncio.get_running_loop().create_task(_looked_up(host, port))
            lookup.add_done_callback(lambda done: self._note(key, done))
        await asyncio.wait([lookup], timeout=LOOKUP_S_MAX)
        if not lookup.done():
            if key in self._found:
                return self._found[key]
            raise TimeoutError(f"no answer about this name within {LOOKUP_S_MAX:g} s")
        error = lookup.exception()
        if isinstance(error, socket.gaierror) and error.errno in NO_ANSWER and key in self._found:
            return self._found[key]
        return lookup.result()

    def close(self) -> None:
        """Wait for no lookup any more."""
        for lookup in self._lookups.values():
            lookup.cancel()

    def _note(self, key: Host, done: asyncio.Task[list[str]]) -> None:
        self._lookups.pop(key, None)
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._found[key] = done.result()
        elif not (isinstance(error, socket.gaierror) and error.errno in NO_ANSWER):
            self._found.pop(key, None)


async def _looked_up(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [_as_text(*address) for _, _, _, _, address in found]


def _as_text(address: Any, _port: Any, _flow: int = 0, link: int = 0) -> str:
    """Return an address as text; one of IPv6 that is valid on one link only with the number of that link."""
    return f"{address}%{link}" if link else str(address)
