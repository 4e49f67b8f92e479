"""eager: tasks without a broker: inside the block, a publish calls the handler.

    send.publish(to="ada") --> body --> arguments --> send(to="ada"), at once --> its follow-ups, at once

Arguments are encoded and decoded as on the wire, so arguments that could not be published, or would not fit the
handler, fail here, too. Exceptions of a handler must reach the publisher, because there is no retry.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from typing import Any

from wakeq.client.arguments.spans import Span
from wakeq.client.message import Body, Received, bytes_of_body
from wakeq.protocol.wire.worker import codec as wire
from wakeq.worker import Worker
from wakeq.worker.context import Current
from wakeq.worker.pools.call import run, run_async
from wakeq.worker.resources import open_asynchronous
from wakeq.worker.task import Task


@contextmanager
def eager(worker: Worker) -> Iterator[list[Received]]:
    """Call the handler of a task at each publish, until the end of the block; no broker is needed.

    The block receives the list of all published messages, in order. A message for a queue without a task is only added
    to that list. Delay, priority and expiry have no effect, and an exception of a handler is raised by `publish`.
    """
    outbox = EagerOutbox(worker.tasks)
    with worker.publishing_to(outbox), worker.hooks.opening_on_demand():
        yield outbox.published


async def _run_async(task: Task[..., Any], message: Received) -> Current:
    """Run a coroutine handler; each call has a loop of its own, so its asynchronous resources are opened anew."""
    async with AsyncExitStack() as stack:
        await open_asynchronous(task.missing_openers(), [task.hooks.values], stack)
        return await run_async(task, message)


class EagerOutbox:
    """The outbox of the tasks inside the block."""

    def __init__(self, tasks: Mapping[str, Task[..., Any]]) -> None:
        self.published: list[Received] = []
        self._tasks = tasks

    def publish(
        self,
        queue: str,
        body: Body,
        *,
        delay: Span = 0,
        timeout: Span | None = None,
        expires: Span = 0,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> str:
        """Call the handler of this queue and return the uid of its message."""
        message = Received(
            queue=queue,
            uid=f"eager-{len(self.published) + 1}",
            body=bytes_of_body(body),
            lease=None,
            delivery=1,
            priority=priority,
            headers=headers or {},
        )
        self.published.append(message)
        if task := self._tasks.get(queue):
            current = asyncio.run(_run_async(task, message)) if task.mode == "coroutine" else run(task, message)
            for followup in current.done().then:
                content = wire.followup_content(followup)
                self.publish(followup.qname, content.body, priority=content.priority, headers=content.headers)
        return message.uid

    def publish_many(self, queue: str, bodies: Iterable[Body], **options: Any) -> list[str]:
        """Call the handler for each body, one after the other."""
        return [self.publish(queue, body, **options) for body in bodies]
