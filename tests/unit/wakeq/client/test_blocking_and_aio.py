"""Tests that Client and AsyncClient have one interface: names, signatures and docstrings."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from wakeq import Client, Message
from wakeq.client.aio import AsyncClient, AsyncMessage

ONLY_ASYNC = {
    "connect": "the blocking one connects when it is made, since making it may wait",
    "drain": "each call of the blocking one waits for its answer, so nothing is left to wait for",
    "introduce": "what a blocking client says of itself does not change while it is connected",
    "sleep": "who waits for each answer cannot hear a wake; it waits inside of fetch(wait=)",
}
# Only AsyncClient has `sleep`, so only it has a listener; and only a Worker, which uses it, says what it works on.
ONLY_ASYNC_ARGUMENTS = {"introduce", "listener"}


def public(kind: type) -> dict[str, Callable[..., Any]]:
    return {name: value for name, value in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def in_blocking_names(text: object) -> str:
    """Return a signature or docstring with asynchronous names replaced by blocking ones."""
    words = re.sub(r"Async(Client|Message|Settler)|aio\.", lambda found: found[1] or "", str(text))
    return words.replace("async with", "with")


@pytest.mark.parametrize(("blocking", "asynchronous"), [(Client, AsyncClient), (Message, AsyncMessage)])
def test_clients_have_the_same_methods(blocking: type, asynchronous: type) -> None:
    expected = set(public(blocking)) | (set(ONLY_ASYNC) if blocking is Client else set())

    assert set(public(asynchronous)) == expected


@pytest.mark.parametrize(("blocking", "asynchronous"), [(Client, AsyncClient), (Message, AsyncMessage)])
def test_methods_have_the_same_signatures_and_docstrings(blocking: type, asynchronous: type) -> None:
    for name, method in public(blocking).items():
        other = public(asynchronous)[name]

        assert str(inspect.signature(method)) == in_blocking_names(inspect.signature(other)), name
        assert inspect.getdoc(method) == in_blocking_names(inspect.getdoc(other)), name


@pytest.mark.parametrize("kind", [AsyncClient, AsyncMessage])
def test_methods_of_async_client_are_coroutines(kind: type) -> None:
    reading = {"text", "json"}

    waiting = [name for name, method in public(kind).items() if inspect.iscoroutinefunction(method)]

    assert set(waiting) == set(public(kind)) - reading


def test_constructors_take_the_same_arguments() -> None:
    ours, theirs = inspect.signature(Client).parameters, inspect.signature(AsyncClient).parameters

    assert {name: str(one) for name, one in theirs.items() if name not in ONLY_ASYNC_ARGUMENTS} == {
        name: str(one) for name, one in ours.items()
    }


def test_clients_have_the_same_properties() -> None:
    def properties(kind: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(kind, lambda value: isinstance(value, property))}

    assert properties(Client) == properties(AsyncClient) == {"address", "broker_version"}
