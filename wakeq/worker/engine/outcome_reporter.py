"""OutcomeReporter: tells the broker what became of messages, many in one command, and until it was heard.

    Outcomes --add--> OutcomeReporter --ack_many, nack_many, ack(then)--> client

What ended since the last command goes out together.  A command whose answer did not come is said again with the same
leases, which makes the second time harmless.  It never waits for an answer before it says the next thing.
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
UNTOLD = Failed("what became of it could not be told; the log of the worker says why", 5)
MESSAGES_MAX = 1000  # in one command
UNDER_WAY_MAX = 256  # commands; a session of the client has room for 1,024


class Settler(Protocol):
    """What is needed of the client."""

    def ack(self, queue: str, *uids: str, lease: str | None = None, then: Then = ()) -> Awaitable[bool]: ...

    def ack_many(self, messages: list[Any]) -> Awaitable[Any]: ...

    def nack_many(
        self,
        messages: list[Any],
        *,
        delay: int | None = None,
        error: str | None = None,
        failed: bool = True,
        dead: bool = False,
        exhausted: bool = False,
    ) -> Awaitable[Any]: ...


class OutcomeReporter:
    """The outcomes that the broker has not confirmed yet, in the order in which they came."""

    def __init__(self, client: Settler, heard: Callable[[], None] = lambda: None) -> None:
        """`heard` is called whenever the broker has heard everything."""
        self._client = client
        self._heard_all = heard
        self._line: dict[tuple[str, Outcome | str], tuple[Outcome, list[Received]]] = {}  # alike and said together
        self._under_way: dict[asyncio.Task[None], int] = {}  # with how many messages each is about
        self._given_up = False

    @property
    def idle(self) -> bool:
        """Whether the broker has heard everything."""
        return not self._under_way and not self._line

    @property
    def under_way(self) -> Set[asyncio.Task[None]]:
        return self._under_way.keys()

    @property
    def unheard(self) -> int:
        """Of how many messages the broker has not heard yet what became of them."""
        return sum(self._under_way.values()) + sum(len(messages) for _, messages in self._line.values())

    def add(self, message: Received, outcome: Outcome) -> None:
        """To be said with the next flush; follow-ups belong to one message, and are said for it alone."""
        alone = isinstance(outcome, Done) and outcome.then
        key = (message.queue, message.uid if alone else outcome)
        if (said_together := self._line.get(key)) is not None:
            said_together[1].append(message)
        else:
            self._line[key] = (outcome, [message])

    def flush(self) -> None:
        """Say what there is room for; the rest when an answer has come."""
        loop = asyncio.get_running_loop()
        while self._line and len(self._under_way) < UNDER_WAY_MAX:
            key = next(iter(self._line))
            outcome, messages = self._line.pop(key)
            if len(messages) > MESSAGES_MAX:
                self._line[key] = (outcome, messages[MESSAGES_MAX:])
                messages = messages[:MESSAGES_MAX]
            task = loop.create_task(self._settle(outcome, messages))
            self._under_way[task] = len(messages)
            task.add_done_callback(self._said)

    def give_up(self) -> None:
        """Repeat nothing any more; what was not heard comes back when its lease ends."""
        self._given_up = True

    def _said(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        self.flush()
        if self.idle:
            self._heard_all()

    async def _settle(self, outcome: Outcome, messages: list[Received]) -> None:
        """Tell it.  What cannot even be said costs the messages that it is about, and no others."""
        try:
            await self._tell(outcome, messages)
        except Exception:
            log.exception("%s: what became of %d messages could not be told", messages[0].queue, len(messages))
            if outcome is not UNTOLD:
                for message in messages:
                    self.add(message, UNTOLD)

    async def _tell(self, outcome: Outcome, messages: list[Received]) -> None:
        client, message = self._client, messages[0]
        if not isinstance(outcome, Done):
            options = nack_of(outcome)
            await self._heard(messages, lambda: client.nack_many(messages, **options))
        elif not outcome.then:
            await self._heard(messages, lambda: client.ack_many(messages))
        else:
            refusal = await self._heard(
                messages, lambda: client.ack(message.queue, message.uid, lease=message.lease, then=outcome.then)
            )
            if refusal is not None:  # nothing of it has happened
                self.add(message, Failed(f"its follow-ups were refused: {refusal}"))

    async def _heard(self, messages: list[Received], say: Callable[[], Awaitable[Any]]) -> WakeqError | None:
        """Say it until it was heard.  Return a refusal that is final."""
        while True:
            try:
                outcome = await say()
            except StaleLease:
                self._tell_stale([message.uid for message in messages], messages[0].queue)
            except NOT_NOW as error:
                if self._given_up:
                    log.warning("%s: %d messages come back later: %s", messages[0].queue, len(messages), error)
                    return None
                await asyncio.sleep(REPEAT_AFTER_S)
                continue
            except WakeqError as error:
                log.error("%s: the end of %d messages was refused: %s", messages[0].queue, len(messages), error)
                return error
            else:
                if stale := getattr(outcome, "stale", None):
                    self._tell_stale(stale, messages[0].queue)
            return None

    def _tell_stale(self, uids: Sequence[str], queue: str) -> None:
        log.warning(
            "%s: the leases of %s were over before their handlers ended; others do them again. Give the task a longer "
            "timeout, or see what stopped this worker for so long",
            queue,
            ", ".join(uids),
        )
