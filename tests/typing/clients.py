"""What type checkers are to say of clients: each line that is marked as an error is one, and no other.

Never run; test_typing.py has mypy and pyright read it.
"""

import ssl
from collections import deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, assert_type
from uuid import UUID

import msgspec

import wakeq
import wakeq.testing
from wakeq import AsyncClient, Client, Message, Worker
from wakeq.protocol.wire.worker.codec import Followup

client = Client("127.0.0.1:2601", reconnect_for_s=2.5)


@dataclass(frozen=True)
class Order:
    number: int
    at: datetime


class Mail(TypedDict):
    to: str


class Place(NamedTuple):
    row: int


class Page(msgspec.Struct):
    url: str


class Size(Enum):
    SMALL = "small"


# A body is text, bytes, or whatever JSON can say.
assert_type(client.publish("orders", "text", delay=1, headers={"trace": "1"}), str)
for body in (b"bytes", bytearray(b"bytes"), memoryview(b"bytes"), 7, 0.5, True, None, {"number": 7}, [7], (7,), {7}):
    client.publish("orders", body)
for value in (Decimal("1.50"), date.today(), datetime.now(UTC).time(), timedelta(1), UUID(int=7), Size.SMALL):
    client.publish("orders", value)
client.publish("orders", {7: "a key that is no text"})
client.publish("orders", Order(7, datetime.now(UTC)))
client.publish("orders", Mail(to="a@b.c"))
client.publish("orders", Place(7))
client.publish("orders", Page("http://x"))
client.publish("orders", deque([7]))  # error
client.publish("orders", object())  # error
client.publish("orders", print)  # error
client.publish("orders", Order)  # error
client.publish("orders", "text", delay=timedelta(1), timeout=7.5)
client.publish("orders", "text", at=datetime.now(UTC))
client.publish("orders", "text", delay="1 day")  # error
client.publish("orders", "text", at=5)  # error

# Many are any iterable of them.
orders = [Order(7, datetime.now(UTC))]
mails: list[Mail] = [{"to": "a@b.c"}]
assert_type(client.publish_many("orders", orders), list[str])
client.publish_many("orders", (Place(row) for row in range(3)))
client.publish_many("mails", mails, id="once")
client.publish_many("orders", [object()])  # error


def work() -> None:
    """A message says what became of it; what follows may be any body too."""
    message = client.fetch("orders", wait=0.5)
    assert_type(message, Message | None)
    message.ack()  # error
    if message is None:
        return
    assert_type(message.json(), Any)
    message.ack(then=[("mails", Mail(to="a@b.c")), ("bills", orders[0]), Followup(qname="audit", message="x")])
    message.nack(30, error=OSError("busy"))
    message.touch(60)
    client.touch_many([message], timeout=60)
    client.ack_many(client.fetch_many("orders", 10))


async def work_on_a_loop(client: AsyncClient) -> None:
    """The same, awaited."""
    assert_type(await client.publish("orders", orders[0]), str)
    await client.publish("orders", client.fetch("orders"))  # error
    await client.publish_many("orders", orders)
    message = await client.fetch("orders")
    if message is not None:
        async with message:
            await message.touch(60)


# Who is trusted may be told in several ways.
Client(tls=True)
Client(tls="ca.pem")
Client(tls=Path("ca.pem"))
Worker(tls=Path("ca.pem"))
AsyncClient(tls=ssl.create_default_context())
Client(tls=7)  # error

# A name that is not there is an error, although they are loaded when they are first used.
assert_type(wakeq.Client, type[Client])
print(wakeq.Clint)  # error
print(wakeq.testing.Brokers)  # error
