"""`wakeq bench`: measures how many messages per second a broker accepts and delivers, as seen by a client here.

    publish, then fetch and acknowledge, in batches, over several connections  -->  a table of rates and latencies

It uses a queue of its own, which it deletes at the end; it touches no other queue.  The programs in bench/ of the
repository compare brokers and separate the processors; this command does not.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING

import click

from wakeq.cli.common import Broker, json_option
from wakeq.cli.output import print_json, print_table
from wakeq.cli.progress import Progress, progress
from wakeq.protocol.errors import Refused

if TYPE_CHECKING:
    from wakeq.client.aio import AsyncClient

COLUMNS = ("step", "messages", "per_second", "p50_ms", "p99_ms")
# Messages that are published and acknowledged one by one.
ALONE_MAX = 500
BATCH_MAX = 1_000
# A line of the protocol holds twice as much, and base64 makes bodies a third longer.
BATCH_BYTES_MAX = 1 << 20
# A published message is available soon.
FETCH_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Load:
    """The size of one measurement."""

    messages: int
    body: bytes
    batch: int
    connections: int

    def shares(self) -> list[int]:
        """Return the number of messages for each connection."""
        each, rest = divmod(self.messages, self.connections)
        return [each + (place < rest) for place in range(self.connections)]


@click.command()
@click.option("--messages", type=click.IntRange(min=1), metavar="N", default=50_000, show_default=True,
              help="How many messages to publish and fetch.")  # fmt: skip
@click.option("--bytes", "body_bytes", type=click.IntRange(min=0), metavar="N", default=100, show_default=True,
              help="The size of a body.")  # fmt: skip
@click.option("--batch", type=click.IntRange(1, BATCH_MAX), metavar="N", default=100, show_default=True,
              help="Messages in one command.")  # fmt: skip
@click.option("--connections", type=click.IntRange(1, 64), metavar="N", default=4, show_default=True,
              help="Connections that work at once.")  # fmt: skip
@json_option
@click.pass_obj
def bench(broker: Broker, messages: int, body_bytes: int, batch: int, connections: int, as_json: bool) -> None:
    """Measure how many messages per second the broker handles.

    A message counts once it is on disk.  The queue of the measurement is deleted at the end (a token needs admin for
    wakeq-bench-*).  This command and other programs on the machine compete with the broker for the processors.
    """
    load = Load(messages, b"x" * body_bytes, min(batch, BATCH_BYTES_MAX // (body_bytes + 1) or 1), connections)
    queue = f"wakeq-bench-{token_hex(4)}"
    with broker.connect() as client:
        client.create_queue(queue)
        try:
            with progress("measuring", is_wanted=not as_json) as shown:
                rows = asyncio.run(_measured(broker.address, queue, load, shown))
        finally:
            client.delete_queue(queue)
    if as_json:
        print_json({"steps": [dict(zip(COLUMNS, row, strict=True)) for row in rows]})
    else:
        print_table(COLUMNS, rows)


async def _measured(address: str, queue: str, load: Load, shown: Progress) -> list[tuple[object, ...]]:
    from wakeq.client.aio import AsyncClient

    alone = Load(min(load.messages, ALONE_MAX), load.body, 1, 1)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(AsyncClient(address)) for _ in range(load.connections)]
        return [
            await _step("publish", load, lambda one, count: _publish(one, queue, load.body, count), clients, shown),
            await _step("fetch, acknowledge", load, lambda one, count: _work(one, queue, count), clients, shown),
            await _step(
                "publish one by one", alone, lambda one, count: _publish(one, queue, load.body, count), clients, shown
            ),
            await _step("fetch one by one", alone, lambda one, count: _work(one, queue, count), clients, shown),
        ]


async def _step(
    name: str,
    load: Load,
    do: "Callable[[AsyncClient, int], Awaitable[int]]",
    clients: "Sequence[AsyncClient]",
    shown: Progress,
) -> tuple[object, ...]:
    """Let each connection do its share in batches; return a row with the rate and the latencies."""
    spans_s: list[float] = []
    shown.begin(name, "messages", load.messages)

    async def share(client: "AsyncClient", left: int) -> None:
        while left:
            began_s = time.perf_counter()
            left -= await do(client, min(left, load.batch))
            spans_s.append(time.perf_counter() - began_s)
            shown.update(min(load.messages, len(spans_s) * load.batch))

    began_s = time.perf_counter()
    await asyncio.gather(*map(share, clients[: load.connections], load.shares()))
    return result_row(name, load.messages, time.perf_counter() - began_s, spans_s)


async def _publish(client: "AsyncClient", queue: str, body: bytes, count: int) -> int:
    await client.publish_many(queue, [body] * count)
    return count


async def _work(client: "AsyncClient", queue: str, count: int) -> int:
    messages = await client.fetch_many(queue, count, wait=FETCH_WAIT_S)
    if not messages:
        raise Refused(f"queue {queue} has nothing where {count} more should be; is another worker connected to it?")
    await client.ack_many(messages)
    return len(messages)


def result_row(name: str, messages: int, span_s: float, spans_s: Sequence[float]) -> tuple[object, ...]:
    """Return a row of the table.  Pure."""
    ordered = sorted(spans_s)
    halfway, late = (1000 * ordered[int(part * (len(ordered) - 1))] for part in (0.5, 0.99))
    return name, messages, round(messages / span_s), round(halfway, 2), round(late, 2)
