"""Message: one delivery in the hands of a worker, and the bodies that a publisher gives.

Pure data with short ways back to the client that fetched it; it holds no connection itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, TypeAlias

import msgspec

Body: TypeAlias = str | bytes | bytearray | memoryview | dict[str, Any] | list[Any] | int | float | bool | None


class Settler(Protocol):
    """What a message needs of the client."""

    def ack(self, queue: str, *uids: str, lease: str | None = None, then: Any = ()) -> bool: ...

    def nack(
        self,
        queue: str,
        *uids: str,
        delay: int | None = None,
        lease: str | None = None,
        error: str | None = None,
    ) -> bool: ...

    def touch(self, queue: str, *uids: str, timeout: int | None = None, lease: str | None = None) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message that is ours until its timeout.  `with message:` acknowledges it, or gives it back."""

    queue: str
    uid: str
    body: bytes
    lease: str | None
    delivery: int  # 1 for the first one
    priority: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    settler: Settler = field(repr=False, compare=False)

    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def ack(self, then: Any = ()) -> bool:
        """It is done with; `then`, (queue, body) pairs, is published in the same step.  False: gone."""
        return self.settler.ack(self.queue, self.uid, lease=self.lease, then=then)

    def nack(self, delay: int | None = None, *, error: str | None = None) -> bool:
        """Give it back, to be delivered again after `delay` seconds, or as the queue's retry policy says."""
        return self.settler.nack(self.queue, self.uid, delay=delay, lease=self.lease, error=error)

    def touch(self, seconds: int | None = None) -> bool:
        """Keep it for `seconds` from now, or for the timeout it was delivered with."""
        return self.settler.touch(self.queue, self.uid, timeout=seconds, lease=self.lease)

    def __enter__(self) -> "Message":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.ack()
        else:
            self.nack(error=f"{kind.__name__}: {error}")


def bytes_of_body(body: Body) -> bytes:
    """Text and bytes as they are, everything else as JSON."""
    match body:
        case str():
            return body.encode()
        case bytes() | bytearray() | memoryview():
            return bytes(body)
        case _:
            return msgspec.json.encode(body)
