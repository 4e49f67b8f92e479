"""Queries: requests of the HTTP side to the actors, as coroutines.

    await queries.stats("jobs")  -->  Question --> queue, Queues, RaftLog --> the answer, or RequestRefused

Every request has a deadline, because an actor that has crashed never answers.  It knows no path and no JSON.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from wakeq.actors.mail import Inquire, Propose
from wakeq.actors.queues.lobby import Lobby
from wakeq.actors.queues.sampler import ReadSeries
from wakeq.actors.runtime import Process
from wakeq.actors.sessions.operator import Question
from wakeq.actors.sessions.operator_mail import (
    Administer,
    Held,
    ListClaims,
    Move,
    Moved,
    Page,
    Requeue,
    Scan,
    Show,
    Why,
    Work,
)
from wakeq.protocol.log.entries import ANY_TOKEN, Entry, Publish, Reason, Result
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.orders import Nack, Stats
from wakeq.protocol.queue.outcomes import Outcome, Refusal
from wakeq.protocol.queue.view import Gauges
from wakeq.protocol.uid import uid_of
from wakeq.protocol.wire.worker.answers import REFUSALS

ANSWER_S_MAX = 10.0


class RequestRefused(Exception):
    """The broker did not carry out a request."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.detail)
        self.refusal = refusal


class Queries:
    """Sends requests and waits for the answers."""

    def __init__(self, lobby: Lobby, queues: Process, raft_log: Process) -> None:
        self._lobby = lobby
        self._queues = queues
        self._raft_log = raft_log

    async def ask(self, process: Process, make: Callable[[Question], Any]) -> Any:
        """Send a request to an actor and wait for its answer; raise RequestRefused if it is refused."""
        question = Question(process.runtime)
        process.tell(make(question))
        return await self._answer_to(question)

    async def _answer_to(self, question: Question) -> Any:
        try:
            answer = await asyncio.wait_for(question, ANSWER_S_MAX)
        except TimeoutError:
            raise RequestRefused(
                Refusal(
                    "BUSY", f"no answer within {ANSWER_S_MAX:g} s; the request may still succeed: check, or repeat it"
                )
            ) from None
        if isinstance(answer, Refusal):
            raise RequestRefused(answer)
        return answer

    async def _ask_queue(self, name: str, make: Callable[[Question], Any]) -> Any:
        return await self.ask(self._lobby.queue(name), make)

    # --- reading ---------------------------------------------------------------------------------------------------

    async def gauges(self) -> list[Gauges]:
        """Return the counters of all queues, by name."""
        found: list[Gauges] = await self.ask(self._queues, lambda me: Stats(me, "", all_queues=True, brief=True))
        return found

    async def queues(
        self, prefix: str, after: str | None, limit: int, sees: Callable[[str], bool]
    ) -> list[dict[str, Any]]:
        """Return the statistics of one page of the queues that `sees` accepts."""

        def make(me: Question) -> Inquire:
            return Inquire(Stats(me, "", all_queues=True, prefix=prefix, after=after, limit=limit, sees=sees))

        found: list[dict[str, Any]] = await self.ask(self._raft_log, make)
        return found

    async def stats(self, queue: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.ask(self._raft_log, lambda me: Inquire(Stats(me, queue)))
        return found

    async def page(self, queue: str, after: int, count: int, *, state: str = "all", in_line: bool = False) -> Page:
        found: Page = await self._ask_queue(queue, lambda me: Scan(me, queue, after, count, state, in_line))
        return found

    async def message(self, queue: str, uid: str) -> dict[str, Any] | None:
        """Return the row of a message, None if it is not in the queue."""
        found: dict[str, Any] | None = await self._ask_queue(queue, lambda me: Show(me, queue, uid))
        return found

    async def why(self, queue: str, uid: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._ask_queue(queue, lambda me: Why(me, queue, uid))
        return found

    async def series(self, queue: str | None, step_s: int, last_s: int) -> dict[str, Any]:
        """Return the series of a queue, or (None) of the node."""
        found: dict[str, Any] = await self.ask(self._queues, lambda me: ReadSeries(me, queue, step_s, last_s))
        return found

    async def held(self, queue: str, workers: frozenset[int]) -> tuple[dict[int, tuple[int, list[Work]]], bool]:
        """Return how many messages of a queue each of these connections has, and some of them, the oldest first; and
        whether all were counted.
        """
        found: dict[int, tuple[int, list[Work]]]
        found, is_complete = await self._ask_queue(queue, lambda me: Held(me, queue, workers))
        return found, is_complete

    async def claims(self, queue: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self._ask_queue(queue, lambda me: ListClaims(me, queue))
        return found

    async def cluster(self, what: str = "status", node_id: int | None = None, address: str = "") -> dict[str, Any]:
        facts: dict[str, Any] = await self.ask(self._raft_log, lambda me: Administer(me, what, node_id, address))
        return facts

    # --- writing ---------------------------------------------------------------------------------------------------

    async def change(self, entry: Entry) -> int:
        """Propose an entry; return its result once it is applied."""
        outcome: Outcome = await self.ask(self._raft_log, lambda me: Propose([Proposal(entry, me)]))
        return done(outcome.results[0])

    async def publish(self, entry: Publish) -> str:
        """Publish one message; return its uid once it is stored."""
        question = Question(self._raft_log.runtime)
        # Filed like a PUB, so that a queue that it creates has the policies that the settings give to new queues.
        self._lobby.filed(entry.queue).publish_whole(question, entry)
        outcome: Outcome = await self._answer_to(question)
        return uid_of(outcome.queue_id, done(outcome.results[0]))

    async def move(
        self, queue: str, uids: list[str], to: str | None, *, redrive: bool = False
    ) -> dict[str, str | None]:
        """Move messages, or delete them without `to`; return each new uid, "" if deleted, None if the message stays."""
        moved: Moved = await self._ask_queue(queue, lambda me: Move(me, queue, uids, to, redrive))
        if moved.refusal is not None:
            refusal = moved.refusal
            code = refusal.code
            err, detail = REFUSALS.get(Result[code], (code, "")) if code in Result.__members__ else (code, "")
            raise RequestRefused(Refusal(err, detail or refusal.detail, refusal.leader, refusal.leader_http))
        return moved.uids

    async def requeue(self, queue: str, uids: list[str]) -> list[int]:
        outcome: Outcome = await self._ask_queue(queue, lambda me: Requeue(me, queue, uids))
        return list(outcome.results)

    async def release(self, queue: str, uid: str) -> bool:
        """Release the lease of a message; return False if there is none."""

        def make(me: Question) -> Nack:
            return Nack(me, queue, [uid], [ANY_TOKEN], 0, "released by an operator", Reason.RETURNED)

        outcome: Outcome = await self._ask_queue(queue, make)
        return bool(outcome.results[0] == Result.DONE)


def done(result: int) -> int:
    """Return a result, or raise RequestRefused if it is a refusal."""
    if result < 0:
        raise RequestRefused(Refusal(*REFUSALS[Result(result)]))
    return result
