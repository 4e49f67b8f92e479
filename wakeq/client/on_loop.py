"""refuse_on_loop: keeps calls that wait for the broker off the threads of event loops.

    Client, TaskFluxClient, MoniqueClient, AdminClient, task.publish, worker.run  -->  refuse_on_loop  -->  OnEventLoop

A call that waits stops everything else on the loop, for as long as the broker is away.  It must not load asyncio: a
program that has not loaded it runs no loop.
"""

import builtins
import sys

from wakeq.protocol.errors import OnEventLoop


def refuse_on_loop(call: str, instead: str) -> None:
    """Raise OnEventLoop if an event loop runs in this thread; `instead` says what to write."""
    events = sys.modules.get("asyncio.events")
    running = getattr(events, "_get_running_loop", None)  # missing while another thread imports it
    if running is None or running() is None:
        return
    if hasattr(builtins, "__IPYTHON__"):  # each cell of a notebook runs on a loop, with nothing else on it
        return
    raise OnEventLoop(
        f"{call} waits for its answer, and the event loop that runs in this thread would stand still for as long; "
        f"{instead}"
    )


def refuse_client_on_loop(client: str) -> None:
    """The same for all calls of a client whose sibling with `Async` in front has them as coroutines."""
    refuse_on_loop(f"a call of {client}", f"use Async{client}, or await asyncio.to_thread(...) with the call")
