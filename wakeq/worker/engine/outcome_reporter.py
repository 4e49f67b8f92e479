"""OutcomeReporter: reports the outcomes of messages to the broker, many in one command, until it has heard them.

    outcomes --add--> OutcomeReporter --ack_many, nack_many, ack(then)--> client

Outcomes that arrived since the last command are sent together. A command without an answer is repeated with the same
leases, which makes the repetition harmless. The reporter does not wait for an answer before it sends the next command.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence, Set
from typing import Any, Protocol

from wakeq.client.message import Received, Then
from wakeq.protocol.errors import NOT_NOW, StaleLease, WakeqError
from wakeq.worker.outcome import Done, Failed, Outcome, nack_of

log = logging.getLogger("wakeq.worker")

REPEAT_AFTER_S = 0.5
# The outcome in place of one that cannot be sent.
UNREPORTABLE = Failed("its outcome could not be reported; see the log of the worker", 5)
# The number of messages in one command.
MESSAGES_MAX = 1000
# Outstanding commands; a session of the client has room for 1,024.
UNDER_WAY_MAX = 256


class ReportClient(Protocol):
    """The methods of AsyncClient that report outcomes."""

    def ack(self, queue: str, *uids: str, lease: str | None = None, then: Then = ()) -> Awaitable[bool]: ...

    def ack_many(self, messages: list[Any]) -> Awaitable[Any]: ...

    def nack_many(
        self,
        messages: list[Any],
        *,
        delay: float | None = None,
        error: str | None = None,
        failed: bool = True,
        dead: bool = False,
        exhausted: bool = False,
    ) -> Awaitable[Any]: ...


class OutcomeReporter:
    """The outcomes that the broker has not confirmed yet, in the order in which they arrived."""

    def __init__(self, client: ReportClient, all_reported: Callable[[], None] = lambda: None) -> None:
        """`all_reported` is called whenever the broker has confirmed everything."""
        self._client = client
        self._all_reported = all_reported
        # Messages with the same queue and outcome share one command.
        self._waiting: dict[tuple[str, Outcome | str], tuple[Outcome, list[Received]]] = {}
        # Outstanding commands, with the number of messages in each.
        self._under_way: dict[asyncio.Task[None], int] = {}
        self._given_up = False

    @property
    def idle(self) -> bool:
        """Whether the broker has confirmed everything."""
        return not self._under_way and not self._waiting

    @property
    def under_way(self) -> Set[asyncio.Task[None]]:
        return self._under_way.keys()

    @property
    def unreported(self) -> int:
        """The number of messages whose outcome the broker has not confirmed."""
        return sum(self._under_way.values()) + sum(len(messages) for _, messages in self._waiting.values())

    def add(self, message: Received, outcome: Outcome) -> None:
        """Report an outcome with the next flush. An outcome with follow-ups gets a command of its own."""
        is_alone = isinstance(outcome, Done) and outcome.then
        key = (message.queue, message.uid if is_alone else outcome)
        if (group := self._waiting.get(key)) is not None:
            group[1].append(message)
        else:
            self._waiting[key] = (outcome, [message])

    def flush(self) -> None:
        """Send as many commands as there is room for. The others follow when answers arrive."""
        loop = asyncio.get_running_loop()
        while self._waiting and len(self._under_way) < UNDER_WAY_MAX:
            key = next(iter(self._waiting))
            outcome, messages = self._waiting.pop(key)
            if len(messages) > MESSAGES_MAX:
                self._waiting[key] = (outcome, messages[MESSAGES_MAX:])
                messages = messages[:MESSAGES_MAX]
            task = loop.create_task(self._report(outcome, messages))
            self._under_way[task] = len(messages)
            task.add_done_callback(self._reported)

    def give_up(self) -> None:
        """Repeat no command any more. Messages without a confirmed outcome are redelivered when their leases end."""
        self._given_up = True

    def _reported(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        self.flush()
        if self.idle:
            self._all_reported()

    async def _report(self, outcome: Outcome, messages: list[Received]) -> None:
        """Report an outcome. One that cannot be sent costs only its own messages."""
        try:
            await self._send(outcome, messages)
        except Exception:
            log.exception("%s: could not report the outcome of %d messages", messages[0].queue, len(messages))
            if outcome is not UNREPORTABLE:
                for message in messages:
                    self.add(message, UNREPORTABLE)

    async def _send(self, outcome: Outcome, messages: list[Received]) -> None:
        client, message = self._client, messages[0]
        if not isinstance(outcome, Done):
            options = nack_of(outcome)
            await self._confirmed(messages, lambda: client.nack_many(messages, **options))
        elif not outcome.then:
            await self._confirmed(messages, lambda: client.ack_many(messages))
        else:
            refusal = await self._confirmed(
                messages, lambda: client.ack(message.queue, message.uid, lease=message.lease, then=outcome.then)
            )
            # The broker has done nothing of it.
            if refusal is not None:
                self.add(message, Failed(f"its follow-ups were refused: {refusal}"))

    async def _confirmed(self, messages: list[Received], send: Callable[[], Awaitable[Any]]) -> WakeqError | None:
        """Repeat a command until the broker has answered. Return a refusal that is final."""
        queue = messages[0].queue
        while True:
            try:
                answer = await send()
            except StaleLease:
                self._log_stale([message.uid for message in messages], queue)
            except NOT_NOW as error:
                if self._given_up:
                    log.warning("%s: %d messages will be redelivered: %s", queue, len(messages), error)
                    return None
                await asyncio.sleep(REPEAT_AFTER_S)
                continue
            except WakeqError as error:
                log.error("%s: the broker refused the outcome of %d messages: %s", queue, len(messages), error)
                return error
            else:
                if stale := getattr(answer, "stale", None):
                    self._log_stale(stale, queue)
            return None

    def _log_stale(self, uids: Sequence[str], queue: str) -> None:
        log.warning(
            "%s: the leases of %s timed out before their handlers ended, so the messages are redelivered; give the "
            "task a longer timeout, or find out what blocked this worker for so long",
            queue,
            ", ".join(uids),
        )
