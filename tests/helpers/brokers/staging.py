"""The commands of a client of the worker protocol that stage something in queue q, and their replies."""

from typing import Any

from tests.helpers.brokers.broker import Client
from tests.helpers.brokers.by_hand import Json


def stage(client: Client, epoch: int, source: str = "s", **fields: Any) -> Json:
    return client.call("STAGE", "q", source=source, epoch=epoch, **fields)


def read(client: Client, epoch: int, slice: int = 0, **fields: Any) -> list[str]:
    reply = client.call("SLICE", "q", source="s", epoch=epoch, slice=slice, **fields)
    assert reply["cmd"] == "slice", reply
    return [message["msg"] for message in reply["messages"]]


def publish(client: Client, *bodies: str, **fields: Any) -> list[str]:
    uids: list[str] = client.call("PUB", "q", messages=list(bodies), **fields)["uids"]
    return uids


def stash(client: Client, name: str, *bodies: str, **fields: Any) -> Json:
    return client.call("STASH", "q", stash=name, messages=list(bodies), **fields)


def unstash(client: Client, epoch: int, *stashes: tuple[str, int]) -> Json:
    return client.call("UNSTASH", "q", writer="w", epoch=epoch, stashes=stashes)


def fetched(client: Client) -> list[str]:
    reply = client.call("FET", "q", count=100)
    return [message["msg"] for message in reply.get("messages", [])]


def publish_job(client: Client, job: str, *stashes: tuple[str, int]) -> Json:
    return client.call("UNSTASH", "q", writer=job, stashes=stashes)
