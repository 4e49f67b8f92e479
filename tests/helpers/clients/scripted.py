"""A client that answers from a script, in place of the client that the command line uses.

    main([verb ...]) --> FakeClient.calls; FakeClient.messages, .error and .answer --> what the verb prints

It never talks to a broker.
"""

import io
import sys
from typing import Any

import pytest

from wakeq.client import Message
from wakeq.client.redrive import Redriven
from wakeq.protocol import errors

Calls = list[tuple[Any, ...]]


class FakeClient:
    """A client that answers from a script and records its calls."""

    calls: Calls
    messages: list[Message]
    error: errors.WakeqError | None

    def __init__(self, address: str, **_timeouts: float) -> None:
        self.calls.append(("connect", address))
        # Only the last address answers.
        self.address = address.split(",")[-1]
        self.broker_version = "7.7"

    def __enter__(self) -> "FakeClient":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: object, **named: object) -> object:
            if self.error:
                raise self.error
            self.calls.append((name, arguments, named))
            return self.answer(name)

        return call

    def answer(self, name: str) -> object:
        answers: dict[str, object] = {
            "publish": "0000001_00000001",
            "fetch_many": self.messages,
            "queues": [{"qname": "emails", "ready": 3}],
            "stats": {"ready": 3, "policies": {"timeout": 60, "retry": {"base": 1.0, "max": 9.0}}},
            "peek": [{"uid": "u", "msg": "x" * 100}],
            "purge": 4,
            "redrive": Redriven(done=3, left=1),
            "ack": False,
            "nack": False,
            "touch": False,
        }
        return answers.get(name)


def message(**fields: Any) -> Message:
    given = {"queue": "q", "uid": "u1", "body": b"hi", "lease": "1.2", "delivery": 1, "client": None}
    return Message(**{**given, **fields})


def answer_on_a_terminal(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    terminal = io.StringIO(text)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)


def give_on_standard_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
