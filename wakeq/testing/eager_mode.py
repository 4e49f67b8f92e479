"""eager: tasks without a broker: inside the block, to publish is to call.

    send.publish(to="ada") --> body --> arguments --> send(to="ada"), at once --> its follow-ups, at once

Arguments go through the same bytes as on the wire, so what could not be published or would not fit the handler fails
here too.  It must never catch what a handler raises: there is no second try, so the publisher hears it.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from wakeq.client.message import Body, Received, bytes_of_body
from wakeq.protocol.wire.worker import codec as wire
from wakeq.worker import Worker
from wakeq.worker.pools.call import run, run_async
from wakeq.worker.task import Task


@contextmanager
def eager(worker: Worker) -> Iterator[list[Received]]:
    """Call the handler of a task whenever it is published, until the end of the block; no broker is needed.

    Gives the list of everything that was published, in this order.  What is for a queue without a task is only in
    that list.  Delay, priority and expiry mean nothing here, and whatever a handler raises rises from `publish`.
    """
    outbox = EagerOutbox(worker.tasks)
    with worker.publishing_to(outbox):
        yield outbox.published


class EagerOutbox:
    """Stands where a task has its client."""

    def __init__(self, tasks: Mapping[str, Task[..., Any]]) -> None:
        self.published: list[Received] = []
        self._tasks = tasks

    def publish(
        self,
        queue: str,
        body: Body,
        *,
        delay: int = 0,
        timeout: int | None = None,
        expires: int = 0,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> str:
        """Call the handler of this queue, and return the uid that it saw."""
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
            self._run(task, message)
        return message.uid

    def publish_many(self, queue: str, bodies: Iterable[Body], **options: Any) -> list[str]:
        """Call the handler with each, one after the other."""
        return [self.publish(queue, body, **options) for body in bodies]

    def _run(self, task: Task[..., Any], message: Received) -> None:
        current = asyncio.run(run_async(task, message)) if task.mode == "coroutine" else run(task, message)
        for followup in current.done().then:
            content = wire.followup_content(followup)
            self.publish(followup.qname, content.body, priority=content.priority, headers=content.headers)
