"""refuse_on_loop: refuses calls that wait for the broker in a thread that runs an event loop.

    Client, TaskFluxClient, MoniqueClient, AdminClient, task.publish, worker.run  -->  refuse_on_loop  -->  OnEventLoop

A call that waits blocks everything else on the loop, perhaps for as long as the broker is away. This file must not
import asyncio: a program that has not imported asyncio runs no loop.
"""

import builtins
import sys

from wakeq.protocol.errors import OnEventLoop


def refuse_on_loop(call: str, instead: str) -> None:
    """Raise OnEventLoop if an event loop runs in this thread; `instead` says what to write."""
    events = sys.modules.get("asyncio.events")
    # The attribute is missing while another thread imports asyncio.
    running = getattr(events, "_get_running_loop", None)
    if running is None or running() is None:
        return
    # Each cell of a notebook runs on a loop of its own that does nothing else.
    if hasattr(builtins, "__IPYTHON__"):
        return
    raise OnEventLoop(f"{call} waits for its answer and would block the event loop that runs in this thread; {instead}")


def refuse_client_on_loop(client: str) -> None:
    """Raise OnEventLoop for a call of a client that has an `Async` sibling."""
    refuse_on_loop(f"a call of {client}", f"use Async{client}, or await asyncio.to_thread(...) with the call")
