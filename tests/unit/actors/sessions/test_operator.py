"""Question: an operator's thread and a coroutine ask the actors, and hear one answer."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pykka
import pytest

from tests.helpers.brokers.broker import Broker, Client
from wakeq.actors.log.raft_log import RaftLog
from wakeq.actors.mail import Inquire, Propose
from wakeq.actors.queues.supervisor import Queues
from wakeq.actors.sessions.operator import Question
from wakeq.actors.sessions.operator_mail import Administer
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import ANY_TOKEN, CreateQueue, Reason, Result
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.orders import Nack, Stats

Q = "q"


def in_thread(broker: Broker, work: Callable[[], Any]) -> Any:
    """Let an operator's thread do it while this one serves; return what came of it."""
    outcome: list[Any] = []
    thread = threading.Thread(target=lambda: outcome.append(work()))
    thread.start()
    while thread.is_alive():
        broker.settle()
        thread.join(0.001)
    return outcome[0]


def test_thread_finds_the_log_in_the_registry_and_asks_it(broker: Broker, client: Client) -> None:
    client.publish(Q)

    def ask() -> list[Any]:
        (log,) = pykka.ActorRegistry.get_by_class(RaftLog)
        questions = [Question() for _ in range(3)]
        log.tell(Administer(questions[0], "status"))
        log.tell(Inquire(Stats(questions[1], Q)))
        log.tell(Propose([Proposal(CreateQueue("made", Policies()), questions[2])]))
        return [question.get(timeout=60) for question in questions]

    status, stats, outcome = in_thread(broker, ask)

    assert (status["role"], stats["ready"], outcome.results) == ("leader", 1, [Result.DONE])


def test_thread_looks_at_an_actor_through_its_proxy(broker: Broker) -> None:
    def look() -> Any:
        (queues,) = pykka.ActorRegistry.get_by_class(Queues)
        return queues.proxy().applied.get(timeout=60)

    assert in_thread(broker, look) == broker.queues.applied


def test_question_is_awaited_on_the_loop_of_the_actors() -> None:
    async def story() -> list[Any]:
        question = Question()
        asyncio.get_running_loop().call_soon(question.tell, "answer")
        return [await asyncio.wait_for(question, 10), question.get()]

    assert asyncio.run(story()) == ["answer", "answer"]


def test_question_may_not_be_waited_for_on_the_thread_of_the_actors(broker: Broker) -> None:
    question = Question(broker.runtime)

    with pytest.raises(RuntimeError, match="await it"):
        question.get()


def test_second_answer_is_dropped() -> None:
    question = Question()

    question.tell("first")
    question.tell("of a queue that was rebuilt")

    assert question.get() == "first"


def test_question_about_one_message_is_answered_whatever_becomes_of_the_message(broker: Broker, client: Client) -> None:
    uid = client.publish(Q)
    client.fetch(Q)
    nack = [uid], [ANY_TOKEN], 0, "", Reason.RETURNED

    first, second = (broker.operate(Q, lambda me: Nack(me, Q, *nack)) for _ in range(2))

    assert (first.results, second.results) == ([Result.DONE], [Result.UNKNOWN])
