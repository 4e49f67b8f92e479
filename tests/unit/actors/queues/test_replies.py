"""The answers of a batch that names many queues."""

from typing import Any

from wakeq.actors.mail import Answered
from wakeq.actors.queues.replies import Replies
from wakeq.actors.runtime import Process, Runtime


class Listener(Process):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Answered] = []

    def on_receive(self, message: Any) -> None:
        self.heard.append(message)


def test_each_asker_hears_once_when_the_last_queue_is_done() -> None:
    runtime = Runtime()
    first, second = runtime.spawn(Listener), runtime.spawn(Listener)
    replies = Replies(["a", "b"])

    replies.done("a", [(first, (None, 0, "of a"))])
    replies.done("a")  # a crash after the last word says it again
    runtime.run_until_idle()
    before = list(first.heard)
    replies.done("b", [(second, (None, 1, "of b")), (first, (None, 2, "of b"))])
    replies.done("b")
    runtime.run_until_idle()

    assert before == []
    assert first.heard == [Answered([(None, 0, "of a"), (None, 2, "of b")])]
    assert second.heard == [Answered([(None, 1, "of b")])]
