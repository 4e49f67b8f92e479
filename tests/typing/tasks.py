"""What type checkers are to say of tasks: each line that is marked as an error is one, and no other.

Never run; test_typing.py has mypy and pyright read it.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import assert_type

from wakeq import Reject, Retry, Snooze, Worker, current, resource
from wakeq.worker import Began, Current, Dead, Done, Ended, Failed, Released

worker = Worker("127.0.0.1:2601", concurrency=8)


@worker.task("emails", timeout=60, retry=Retry(max=5, backoff="exponential"))
def send(to: str, copies: int = 1) -> bool:
    return bool(to) and copies > 0


@worker.task("pages")
async def fetch(url: str) -> bytes:
    return url.encode()


# A call is a call of the handler.
assert_type(send("a@b.c"), bool)
send(to=5)  # error
send()  # error
send("a", copies="two")  # error


async def waits() -> None:
    """A coroutine is awaited."""
    assert_type(await fetch("http://x"), bytes)
    await fetch(5)  # error
    assert_type(await send.publish_async(to="a@b.c"), str)
    assert_type(await fetch.options(delay=60).publish_async("http://x"), str)
    assert_type(await send.options(priority=-5).publish_many_async([{"to": "a"}, {"to": "b"}]), list[str])
    await send.publish_async(to=5)  # error
    await send.publish_async()  # error


# A run says how many handlers there were; what it is told is checked.
assert_type(worker.run(drain=True, limit=10), int)
worker.run(limit="10")  # error


# A publication takes the same arguments, and says which message it made.
assert_type(send.publish(to="a@b.c"), str)
assert_type(fetch.publish(url="http://x"), str)
assert_type(send.publish_many([{"to": "a"}, {"to": "b"}]), list[str])
send.publish(to=5)  # error
send.publish(too="a")  # error
send.publish()  # error

# Options keep the arguments, and are checked themselves.
assert_type(send.options(delay=60, priority=-5).publish("a", copies=2), str)
send.options(delay=60).publish(to=5)  # error
send.options(later=60)  # error
assert_type(send.options(at=datetime.now(UTC), expires=timedelta(days=1)).publish("a"), str)
send.options(at="tomorrow")  # error
send.delay("a")  # error
Retry(delay=timedelta(minutes=1), delay_max=0.5)
Snooze(timedelta(hours=1))

# A follow-up is a publication.
current().then(send, to="a@b.c")
current().then(send.options(delay=60), "a@b.c", copies=2)
current().then("audit", {"sent": 1})
current().then(send, to=5)  # error
current().then(send)  # error
current().then("audit")  # error
assert_type(current().delivery, int)
assert_type(current().lease, str | None)


# What a decorator is given is checked too.
@worker.task("bad-timeout", timeout="long")  # error
def bad_timeout() -> None: ...


@worker.task("by-the-queue", retry=None)
def by_the_queue() -> None: ...


@worker.task("bad-mode", mode="fork")  # error
def bad_mode() -> None: ...


def endings(how: str) -> None:
    """A handler may end like this."""
    match how:
        case "retry":
            raise Retry("busy", delay=30)
        case "snooze":
            raise Snooze(60)
        case "reject":
            raise Reject("never")
        case _:
            raise Retry(backoff="linear")  # error


class Mailer:
    """A task may be kept and passed on with its type."""

    def __init__(self) -> None:
        self.send = send

    def mail(self) -> str:
        return self.send.publish(to="a@b.c")


# A schedule takes a task, or one with options.
worker.schedule(send, "@daily", zone="Europe/Berlin", arguments={"to": "a@b.c"})
worker.schedule(fetch.options(priority=-5), 60, arguments={"url": "http://x"})
worker.schedule(waits, 60)  # error
worker.schedule(send, None)  # error


# A resource has the type of what its opener yields, and is no argument of a message that anybody must give.
class Database:
    def save(self, row: str) -> None: ...


@contextmanager
def database() -> Iterator[Database]:
    yield Database()


@asynccontextmanager
async def pool() -> AsyncIterator[list[Database]]:
    yield [Database()]


def connect() -> Database:
    return Database()


class Session:
    """A class with both protocols, of which the asynchronous one counts."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    async def __aenter__(self) -> "Session":
        return self

    async def __aexit__(self, *_: object) -> None: ...


assert_type(resource(database), Database)
assert_type(resource(pool), list[Database])
assert_type(resource(Session), Session)
resource(connect)  # error
resource(database())  # error


@worker.task("rows")
def store(row: str, db: Database = resource(database)) -> None:
    db.save(row)


@worker.task("many-rows")
async def store_many(row: str, dbs: list[Database] = resource(pool)) -> None: ...


@worker.task("bad-resource")
def bad_resource(db: str = resource(database)) -> None: ...  # error


assert_type(store.publish("row"), str)
store("row", db=Database())
store("row", db="a text")  # error


# Hooks keep the type of what they decorate, and check it.
@worker.lifespan
@contextmanager
def started() -> Iterator[None]:
    yield


@worker.lifespan
@asynccontextmanager
async def started_on_the_loop() -> AsyncIterator[None]:
    yield


worker.lifespan(connect)  # error


@worker.middleware
@contextmanager
def logged(message: Current) -> Iterator[None]:
    assert_type(message.uid, str)
    yield


@worker.middleware
@asynccontextmanager
async def in_a_transaction(message: Current) -> AsyncIterator[None]:
    yield


@worker.middleware
def made(message: Current) -> AbstractContextManager[None]:
    return nullcontext()


worker.middleware(started)  # error


@worker.listener
def listen(event: Began | Ended) -> None:
    match event:
        case Began():
            assert_type(event.message.uid, str)
        case Ended(outcome=outcome):
            assert_type(event.duration_s, float)
            match outcome:
                case Done() | Released():
                    pass
                case Failed(delay_s=delay_s):
                    assert_type(delay_s, float | None)
                case Dead(error=error):
                    assert_type(error, str)


def listen_to_the_end(event: Ended) -> None: ...


worker.listener(listen_to_the_end)  # error


with worker.replacing({database: Database()}):
    store.publish("row")
