"""Client: the broker for a program that waits for each answer.

    client.publish(...)  -->  Request  -->  Caller  -->  broker

A call either returns what the broker said or raises a WakeqError that says what to try.  Threads may share one
client: their calls are under way together, also beside a fetch that waits.  A forked child may use it too: there it
makes a connection of its own.  Anything that is more than one line belongs into requests.py or caller.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from wakeq.client.caller import Caller
from wakeq.client.core import requests
from wakeq.client.core.requests import Settled
from wakeq.client.core.route import DEFAULT_ADDRESS, default_address
from wakeq.client.core.timeouts import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, RECONNECT_FOR_S, Timeouts
from wakeq.client.credentials import Tls, context_of, token_source
from wakeq.client.message import Body, Message, Reason, Then
from wakeq.client.redrive import Redriven, Steps, redrive
from wakeq.client.transport import Wire, dial
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.wire.worker import codec as wire

__all__ = ["DEFAULT_ADDRESS", "Client"]

T = TypeVar("T")


class Client:
    """A connection to a broker, made again by itself when it breaks."""

    _waits = True  # for the broker; where an event loop runs, calls are refused then

    def __init__(
        self,
        address: str | None = None,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        reconnect_for_s: float = RECONNECT_FOR_S,
        token: str | None = None,
        tls: Tls = None,
    ) -> None:
        """Connect to `address`, HOST:PORT or several with commas between; else to WAKEQ_BROKER, else to 127.0.0.1:2601.

        `token` says who we are, else WAKEQ_TOKEN or the file WAKEQ_TOKEN_FILE.  `tls`: True, a file of authorities to
        trust, or an SSLContext; else WAKEQ_TLS.  Raises BrokerUnreachable if there is nobody.
        """
        timeouts = Timeouts(connect_timeout_s, answer_timeout_s, reconnect_for_s)
        self._connect_timeout_s = connect_timeout_s
        self._context = context_of(tls)
        self._caller = Caller(
            address or default_address(), timeouts, self._dial, token_source(token), waits=self._waits
        )

    @property
    def address(self) -> str:
        """Where the broker is."""
        return self._caller.address

    @property
    def broker_version(self) -> str:
        """What the broker said of itself when it greeted."""
        return self._caller.broker_version

    def close(self) -> None:
        """End the connection, also under calls that wait; the client is of no use afterwards."""
        self._caller.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    # Messages ---------------------------------------------------------------------------------------------

    def publish(
        self,
        queue: str,
        body: Body,
        *,
        delay: int = 0,
        timeout: int | None = None,
        expires: int = 0,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> str:
        """Publish one message (text, bytes, or what JSON can say) and return its uid; spans are whole seconds.

        It is stored when this returns, and once, even if the connection broke in between.  `id` does the same
        over restarts of the publisher, for 15 minutes.
        """
        options = requests.Options(delay, timeout, expires, priority, headers, id)
        return self._caller.call(requests.publish(queue, body, options))

    def publish_many(
        self,
        queue: str,
        bodies: Iterable[Body],
        *,
        delay: int = 0,
        timeout: int | None = None,
        expires: int = 0,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> list[str]:
        """Publish all of them or none, in one step, and return the uids in the same order."""
        options = requests.Options(delay, timeout, expires, priority, headers, id)
        batch = requests.batch_of(bodies)
        return self._caller.call(requests.publish_many(queue, batch, options)) if batch else []

    def fetch(self, queue: str, *, wait: float = 0, timeout: int | None = None) -> Message | None:
        """The next message, ours for `timeout` seconds, or for its own; None if there is none within `wait` seconds.

        Without `wait` a queue that does not exist is QueueNotFound; with it, it is waited for.
        """
        return self._caller.call(requests.fetch(queue, wait, self._message, timeout))

    def fetch_many(self, queue: str, count: int, *, wait: float = 0, timeout: int | None = None) -> list[Message]:
        """Up to `count` messages; an empty list if there is none within `wait` seconds."""
        return self._caller.call(requests.fetch_many(queue, count, wait, self._message, timeout))

    def ack(self, queue: str, *uids: str, lease: str | None = None, then: Then = ()) -> bool:
        """The messages are done with; `then` is published in the same step.  False: one was gone."""
        return self._caller.call(requests.ack(queue, uids, lease, then))

    def nack(
        self,
        queue: str,
        *uids: str,
        delay: int | None = None,
        lease: str | None = None,
        error: Reason | None = None,
        failed: bool = True,
        dead: bool = False,
        exhausted: bool = False,
    ) -> bool:
        """Give messages back, to be delivered after `delay` seconds, or as the queue's retry policy says.

        `failed=False`: it counts as no failure.  `dead=True`: they become dead letters now; `exhausted=True` says of
        them that they were tried as often as they may.  False: one was gone.
        """
        ending = requests.Ending(delay, error, failed, dead, exhausted)
        return self._caller.call(requests.nack(queue, uids, lease, ending))

    def touch(self, queue: str, *uids: str, timeout: int | None = None, lease: str | None = None) -> bool:
        """Keep messages for `timeout` seconds from now, or for the timeout they were delivered with."""
        return self._caller.call(requests.touch(queue, uids, lease, timeout))

    def ack_many(self, messages: Sequence[Message]) -> Settled:
        """Messages of one queue are done with, each by its own lease, in one step."""
        return self._caller.call(requests.ack_many(messages)) if messages else Settled()

    def nack_many(
        self,
        messages: Sequence[Message],
        *,
        delay: int | None = None,
        error: Reason | None = None,
        failed: bool = True,
        dead: bool = False,
        exhausted: bool = False,
    ) -> Settled:
        """Give messages of one queue back, each by its own lease, in one step."""
        ending = requests.Ending(delay, error, failed, dead, exhausted)
        return self._caller.call(requests.nack_many(messages, ending)) if messages else Settled()

    def touch_many(self, messages: Sequence[Message], *, timeout: int | None = None) -> Settled:
        """Keep messages of one queue for longer, each by its own lease, in one step."""
        return self._caller.call(requests.touch_many(messages, timeout)) if messages else Settled()

    # Working ----------------------------------------------------------------------------------------------

    def subscribe(self, queue: str) -> None:
        """Join those who work on a queue, which need not exist yet; also on each connection that follows."""
        self._caller.call(requests.subscribe(queue))

    def unsubscribe(self, queue: str) -> None:
        """Leave those who work on a queue."""
        self._caller.call(requests.unsubscribe(queue))

    # Queues -----------------------------------------------------------------------------------------------

    def queues(self, prefix: str = "") -> list[dict[str, Any]]:
        """Every queue whose name begins with `prefix`, with what the broker says of it."""
        return self._caller.call(requests.queues(prefix))

    def stats(self, queue: str | None = None) -> dict[str, Any]:
        """Counts and policies of a queue; of the whole node for None."""
        return self._caller.call(requests.stats(queue))

    def cluster(self, do: str = "status", *, node: int | None = None, address: str = "") -> dict[str, Any]:
        """Look at the cluster; or transfer, add, remove or snapshot (docs/operations/cluster.md)."""
        return self._caller.call(requests.cluster(do, node, address))

    def peek(self, queue: str, count: int = 10, *, state: str = "ready") -> list[dict[str, Any]]:
        """Look at the next messages in a state (ready, delayed, leased, any), changing nothing."""
        return self._caller.call(requests.peek(queue, count, state))

    def create_queue(self, queue: str, **policies: Any) -> None:
        """Make a queue with these policies; QueueExists if there is one."""
        self._caller.call(requests.create_queue(queue, policies))

    def update_queue(self, queue: str, **policies: Any) -> None:
        """Change the named policies of a queue; None sets one back to its default."""
        self._caller.call(requests.update_queue(queue, policies))

    def delete_queue(self, queue: str) -> None:
        """Delete a queue with all that is in it."""
        self._caller.call(requests.delete_queue(queue))

    def purge(self, queue: str) -> int:
        """Delete all messages of a queue and return how many there were."""
        return self._caller.call(requests.purge(queue))

    def redrive(
        self, queue: str, count: int | None = None, *, to: str | None = None, anywhere: bool = False
    ) -> Redriven:
        """Move dead letters, up to `count` or all that are ready now, back to where each came from, or to `to`.

        Each leaves `queue` in the step in which it is published again.  One without an origin stays, and so does one
        whose origin does not send its dead letters to `queue`, unless `anywhere` says that it may go there.
        """
        return self._carry_out(redrive(queue, count, to, anywhere=anywhere))

    def ping(self) -> None:
        """Return when the broker has answered."""
        self._caller.call(requests.ping())

    def _carry_out(self, steps: Steps[T]) -> T:
        """Ask one request after the other; an error goes to where the next one is decided."""
        try:
            request = next(steps)
            while True:
                try:
                    answer = self._caller.call(request)
                except WakeqError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as end:
            return cast(T, end.value)

    def _dial(self, address: str) -> Wire:
        """Connect to one address; a subclass may lead to a broker of another kind."""
        return dial(address, self._context, timeout_s=self._connect_timeout_s)

    def _message(self, queue: str, one: wire.Msg | wire.Delivery) -> Message:
        return Message(settler=self, **requests.facts_of(queue, one))
