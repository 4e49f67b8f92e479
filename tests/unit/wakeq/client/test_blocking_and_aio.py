"""Proves that the blocking and the asyncio client are one interface: names, signatures, and what they mean."""

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
    "sleep": "who waits for each answer cannot hear a wake; it waits inside of fetch(wait=)",
}
ONLY_ASYNC_ARGUMENTS = {"listener"}  # see `sleep`


def public(kind: type) -> dict[str, Callable[..., Any]]:
    return {name: value for name, value in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def in_words_of_the_other(text: object) -> str:
    """A signature or docstring with the asynchronous words replaced by the blocking ones."""
    words = re.sub(r"Async(Client|Message|Settler)|aio\.", lambda found: found[1] or "", str(text))
    return words.replace("async with", "with")


@pytest.mark.parametrize(("blocking", "asynchronous"), [(Client, AsyncClient), (Message, AsyncMessage)])
def test_both_have_the_same_methods(blocking: type, asynchronous: type) -> None:
    expected = set(public(blocking)) | (set(ONLY_ASYNC) if blocking is Client else set())

    assert set(public(asynchronous)) == expected


@pytest.mark.parametrize(("blocking", "asynchronous"), [(Client, AsyncClient), (Message, AsyncMessage)])
def test_every_method_has_the_same_signature_and_meaning(blocking: type, asynchronous: type) -> None:
    for name, method in public(blocking).items():
        other = public(asynchronous)[name]

        assert str(inspect.signature(method)) == in_words_of_the_other(inspect.signature(other)), name
        assert inspect.getdoc(method) == in_words_of_the_other(inspect.getdoc(other)), name


@pytest.mark.parametrize("kind", [AsyncClient, AsyncMessage])
def test_every_method_of_the_asyncio_side_is_awaited(kind: type) -> None:
    reading = {"text", "json"}

    waiting = [name for name, method in public(kind).items() if inspect.iscoroutinefunction(method)]

    assert set(waiting) == set(public(kind)) - reading


def test_both_are_made_with_the_same_arguments() -> None:
    ours, theirs = inspect.signature(Client).parameters, inspect.signature(AsyncClient).parameters

    assert {name: str(one) for name, one in theirs.items() if name not in ONLY_ASYNC_ARGUMENTS} == {
        name: str(one) for name, one in ours.items()
    }


def test_both_have_the_same_properties() -> None:
    def properties(kind: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(kind, lambda value: isinstance(value, property))}

    assert properties(Client) == properties(AsyncClient) == {"address", "broker_version"}
