"""Thousands of idle workers in one process (W5): they sleep, report each wake, and hang up together.

    python -m bench.load.workers PEER PORT COUNT      prints `asleep N`, then `awake SECONDS` for each message

It ends when its standard input ends, and never looks at the server's process.
"""

import asyncio
import contextlib
import sys
import time

import uvloop

from bench.load.clients import Caller, PeerFailed, connect
from bench.peers import PEERS
from bench.runner import allow_many_files

AT_ONCE = 64  # connections being opened
FOR_EACH_SOURCE = 5_000  # connections from one loopback address


async def sleep_together(peer_name: str, port: int, count: int) -> None:
    """Open and park them all, report what wakes, hang up when standard input ends."""
    gate, workers = asyncio.Semaphore(AT_ONCE), []

    async def park(number: int) -> None:
        async with gate:
            source = f"127.0.1.{1 + number // FOR_EACH_SOURCE}"
            worker = await connect(PEERS[peer_name].caller_class(), port, source)
            await worker.doze()
            workers.append(worker)

    await asyncio.gather(*(park(number) for number in range(count)))
    tasks = [asyncio.create_task(work(worker)) for worker in workers]
    print(f"asleep {len(workers)}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    for task in tasks:
        task.cancel()
    for worker in workers:
        worker.close()


async def work(worker: Caller) -> None:
    with contextlib.suppress(PeerFailed):
        while True:
            handle = await worker.wake()
            print(f"awake {time.perf_counter()}", flush=True)  # one clock for all processes of a machine
            await worker.ack(handle)
            await worker.doze()


if __name__ == "__main__":
    allow_many_files()
    uvloop.run(sleep_together(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
