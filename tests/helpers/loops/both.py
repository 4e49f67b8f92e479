"""The two event loops that a broker may run on; tests of its sockets run on both."""

import asyncio
from collections.abc import Awaitable, Callable

import uvloop

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]
Run = Callable[[Callable[[], Awaitable[None]]], None]
