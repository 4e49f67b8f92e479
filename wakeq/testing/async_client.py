"""MemoryAsyncClient: an AsyncClient of a broker in memory, for code under test that awaits.

    await client.fetch(...)  -->  Request  -->  Caller  -->  MemoryConnection  -->  Machine

Every answer is there as soon as it is awaited, and a fetch that waits lets driven time pass, as with the blocking
client: it is the same Caller.  It never waits for the loop but to let others have their turn.
"""

import asyncio
from typing import TypeVar

from wakeq.client.aio import AsyncClient
from wakeq.client.aio_caller import AsyncCaller
from wakeq.client.caller import Caller
from wakeq.client.core.requests import Request
from wakeq.client.core.timeouts import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, Timeouts
from wakeq.testing.connection import ADDRESS, RECONNECT_FOR_S, MemoryConnection
from wakeq.testing.machine import Machine

T = TypeVar("T")


class ImmediateCaller(AsyncCaller):
    """An AsyncCaller with nothing to wait for: all of its methods are those of a Caller."""

    def __init__(self, caller: Caller) -> None:
        self._blocking = caller

    @property
    def address(self) -> str:
        return self._blocking.address

    @property
    def broker_version(self) -> str:
        return self._blocking.broker_version

    async def connect(self) -> None:
        """There is a connection since it was made."""

    async def call(self, request: Request[T]) -> T:
        await asyncio.sleep(0)  # as a real call does: a task that only calls must not keep the others waiting
        return self._blocking.call(request)

    async def drain(self) -> None:
        """Everything that was asked is answered."""

    async def close(self) -> None:
        self._blocking.close()


class MemoryAsyncClient(AsyncClient):
    """See the head of this file."""

    def __init__(self, machine: Machine) -> None:
        timeouts = Timeouts(CONNECT_TIMEOUT_S, ANSWER_TIMEOUT_S, RECONNECT_FOR_S)
        self._caller = ImmediateCaller(
            Caller(ADDRESS, timeouts, lambda address: MemoryConnection(machine), waits=False)
        )
