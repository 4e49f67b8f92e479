"""Process: a light actor.  It costs an object and no thread; a hundred bytes while it is idle.

    tell, ask, stop --> mailbox --> on_receive, one message at a time, on the runtime's thread

It uses the hooks that pykka has for new actor types; pykka's ids, events and refs are made only when asked for, and
it is never in pykka's ActorRegistry.  It must never block, be async, or touch another process's attributes.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import deque
from functools import cached_property
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, NoReturn
from uuid import uuid4

import pykka
from pykka.messages import _ActorStop

from wakeq.actors.runtime.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from wakeq.actors.runtime.runtime import Runtime

# The mailbox of every dead process: it takes all mail and keeps none, so `tell` needs no test for it.
DEAD: Final[deque[Any]] = deque(maxlen=0)


class Envelope:
    """Mail that is more than a message: it wants a reply, or comes by pykka's own ways (stop, proxies)."""

    __slots__ = ("message", "reply")

    def __init__(self, message: Any, reply: Reply | None = None) -> None:
        self.message = message
        self.reply = reply

    @property
    def stops(self) -> bool:
        """True for the message that ends a process."""
        return isinstance(self.message, _ActorStop)

    def refuse(self, process: Process) -> None:
        """Answer for a process that has ended before it came to this."""
        if self.reply is None:
            return
        if self.stops:
            self.reply.set(None)
        else:
            self.reply.set_exception(pykka.ActorDeadError(f"{process!r} ended before it handled the message"))


STOP: Final = Envelope(_ActorStop())


class Process(pykka.Actor):
    """A light actor; `runtime.spawn(ItsClass, ...)` is the only way to make one.

    `_mail` is None while it is idle, DEAD when it has ended, otherwise its mailbox; it has a mailbox if and
    only if it stands on the run queue or is being served.
    """

    __slots__ = ("_mail", "runtime")

    runtime: Runtime  # set by spawn, before __init__ runs
    unread: Sequence[Any] = ()  # the mail that a failed process leaves behind, for its on_failure
    _mail: deque[Any] | None

    def __init__(self) -> None:
        if not hasattr(self, "runtime"):
            raise TypeError(f"make it by runtime.spawn({type(self).__name__}, ...)")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {id(self):#x}>"

    __str__ = __repr__  # pykka's would draw an id for every process that is printed

    # What others may do with it -----------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """False once it has stopped or failed."""
        return self._mail is not DEAD

    @property
    def idle(self) -> bool:
        """True while it has no mail and is not being served."""
        return self._mail is None

    def tell(self, message: object) -> None:
        """Put a message into its mailbox, from any thread; dropped in silence if it has ended."""
        runtime = self.runtime
        if get_ident() != runtime.thread:
            runtime.hand_over(self, message)
        elif (mail := self._mail) is not None:
            mail.append(message)
        else:
            runtime.wake(self, message)

    def arrive(self, message: object) -> None:
        """Tell what a socket brought; if nothing else has arrived, it is handled before this returns."""
        self.runtime.arrive(self, message)

    def ask(self, message: object) -> Reply:
        """Tell a message whose outcome is wanted: what on_receive returns or raises, or ActorDeadError."""
        reply = Reply()
        self.post(Envelope(message, reply))
        return reply

    def stop(self) -> None:
        """End it, after the mail that it has by now."""
        self.tell(STOP)

    def post(self, envelope: Envelope) -> None:
        """Tell an envelope; unlike a bare message it is refused, not dropped, if the process has ended."""
        if self._mail is DEAD:  # the runtime looks again if this is not its thread
            envelope.refuse(self)
        else:
            self.tell(envelope)

    # What a subclass says -----------------------------------------------------------------------------------

    @abstractmethod
    def on_receive(self, message: Any) -> Any:
        """Handle one message; what it returns is the reply if somebody asked."""

    def on_start(self) -> None:
        """Run at the end of spawn, before any mail."""

    def on_stop(self) -> None:
        """Run after a normal stop; mail told to itself from here is dropped."""

    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Run instead of on_stop when an exception has ended it."""

    # What pykka expects of an actor -------------------------------------------------------------------------

    @cached_property
    def actor_urn(self) -> str:  # type: ignore[override]  # lazy: most processes are never named
        """Return an id that is unique in the world."""
        return uuid4().urn

    @cached_property
    def actor_inbox(self) -> Inbox:  # type: ignore[override]
        """Return the mailbox as pykka's refs see it."""
        return Inbox(self)

    @cached_property
    def actor_stopped(self) -> threading.Event:  # type: ignore[override]
        """Return an event that is set when the process has ended."""
        event = threading.Event()
        if not self.alive:
            event.set()
        return event

    @cached_property
    def actor_ref(self) -> pykka.ActorRef[Any]:
        """Return a ref of pykka's; its tell, ask and stop reach the same mailbox."""
        return pykka.ActorRef(self)

    @classmethod
    def start(cls, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Refuse pykka's way to start: a process needs a runtime."""
        raise TypeError(f"start it by runtime.spawn({cls.__name__}, ...)")

    @staticmethod
    def _create_actor_inbox() -> NoReturn:
        raise TypeError("the mailbox of a light process is made by its runtime")

    @staticmethod
    def _create_future() -> pykka.ThreadingFuture[Any]:
        return pykka.ThreadingFuture()  # for refs in other threads; on the loop, ask the process itself

    def _start_actor_loop(self) -> None:
        self.runtime.begin(self)

    def _stop(self) -> None:
        self.runtime.end(self, None)


class Inbox:
    """A process's mailbox as pykka sees it.  It holds its process (pykka's refs are weak)."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def put(self, envelope: Any, /) -> None:
        """Take what a ref sends, from any thread."""
        future = envelope.reply_to
        self._process.post(Envelope(envelope.message, None if future is None else FutureReply(future)))

    def get(self) -> NoReturn:
        """Refuse: nobody but the runtime takes mail out."""
        raise TypeError("a light process is served by its runtime")

    def empty(self) -> bool:
        """Tell whether no mail waits."""
        return not self._process._mail


class FutureReply(Reply):
    """A reply that settles a future of pykka's."""

    __slots__ = ("_future",)

    def __init__(self, future: pykka.Future[Any]) -> None:
        super().__init__()
        self._future = future

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if self._done:
            return
        self._done = True
        if error is None:
            self._future.set(value)
        else:
            self._future.set_exception((type(error), error, error.__traceback__))
