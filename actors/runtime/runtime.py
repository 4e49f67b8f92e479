"""Runtime: the run queue on which all light processes of one loop take turns; Process: one of them.

    tell --> mailbox, run queue --> turn (on the loop, at most turn_s) --> on_receive ... on_stop, Down
    pykka's ref --> Process.put --> the same mailbox

It gives every process with mail its share, so that a busy one starves neither the others nor the sockets.  It
makes and ends processes and keeps their monitors and groups.  It must never block.  It knows its event loop only
through `call_soon`; without a loop, `run_until_idle` serves the mail.  Two runtimes share nothing.

Both classes are here because both write a mailbox: `tell` gives an idle process one, and the turn takes it back.
Together they are a backend of pykka (docs/internals/runtime.md).
"""

from __future__ import annotations

import logging
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from threading import get_ident
from typing import Any, Final, NoReturn, ParamSpec, Protocol, Self, TypeVar, cast
from uuid import uuid4

import pykka
from pykka._envelope import Envelope
from pykka.messages import _ActorStop

from wakeq.actors.runtime.future import Future
from wakeq.actors.runtime.groups import Groups
from wakeq.actors.runtime.links import Links
from wakeq.actors.runtime.rounds import ROUND_COMMANDS_MAX, ROUND_COMMANDS_MIN, Rounds

P = ParamSpec("P")
ProcessT = TypeVar("ProcessT", bound="Process")

# Messages that a process may handle before it goes to the end of the run queue; the clock is read as often.  A message
# is a batch, so 32 of them can take milliseconds.
MAIL_BUDGET = 32
# After two arrivals met in one round of the loop, the next ones wait for the turn, until this many rounds had only one.
# Where several connections are busy most rounds have several, and together they share one sync.
GATHER_ROUNDS = 32
# Doors with more than their share wait until all mail is handled, but no longer than so many turns.
PATIENCE_TURNS = 8
# Empty mailboxes that are kept for reuse; one is larger than most objects, and freeing it would fragment memory.
MAILBOXES_MAX = 1_024
# Messages that run_until_idle serves before it decides that processes are telling each other in circles.
MESSAGES_UNTIL_IDLE_MAX = 50_000_000

STOP: Final = Envelope(_ActorStop())

logger = logging.getLogger("wakeq.runtime")


class Loop(Protocol):
    """The part of an event loop that a runtime needs."""

    def call_soon(self, callback: Callable[[], object]) -> object:
        """Run callback in the next round of the loop."""

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> object:
        """The same, from any thread."""


class Flushing(Protocol):
    """A process that gathers what it has to send."""

    alive: bool

    def flush(self) -> None:
        """Send it, in one write."""


CallSoon = Callable[[Callable[[], None]], object]


def _ask_nobody(_callback: Callable[[], None]) -> None:
    """Without a loop, mail is served when `run_until_idle` is called."""


class NeverIdle(RuntimeError):
    """Processes kept each other busy beyond the bound of run_until_idle."""


class NoMailbox(deque[Any]):
    """The mailbox of every process that has ended: it keeps nothing, and refuses what wants an answer."""

    def append(self, message: object) -> None:
        if type(message) is not Envelope or message.reply_to is None:
            return
        if isinstance(message.message, _ActorStop):
            message.reply_to.set(None)
        else:
            dead = pykka.ActorDeadError("the process ended before it handled the message")
            message.reply_to.set_exception((type(dead), dead, None))


DEAD: Final = NoMailbox()


class Process(pykka.Actor):
    """A light actor: it costs an object and no thread, a hundred bytes while it is idle.

    `runtime.spawn(ItsClass, ...)` makes one, `runtime.start(ItsClass, ...)` one that outsiders can find.  It must never
    block, be async, or touch another process's attributes.

    `_mail` is None while it is idle, DEAD when it has ended, otherwise its mailbox; it has a mailbox if and only if it
    stands on the run queue or is being served.
    """

    __slots__ = ("_mail", "runtime")

    runtime: Runtime  # set by spawn, before __init__ runs
    alive = True  # False once it has stopped or failed; an attribute, because it is read on the way of commands
    unread: Sequence[Any] = ()  # the mail that a failed process leaves behind, for its on_failure
    _mail: deque[Any] | None

    def __init__(self) -> None:
        if not hasattr(self, "runtime"):
            raise TypeError(f"make it by runtime.spawn({type(self).__name__}, ...)")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {id(self):#x}>"

    __str__ = __repr__  # pykka's would draw an id for every process that is printed

    @abstractmethod
    def on_receive(self, message: Any) -> Any:
        """Handle one message; what it returns is the answer if somebody asked."""

    # What others may do with it, on the runtime's thread or any other -------------------------------------------

    @property
    def idle(self) -> bool:
        """True while it has no mail and is not being served."""
        return self._mail is None

    def tell(self, message: object) -> None:
        """Put a message into its mailbox, from any thread; dropped in silence if it has ended."""
        runtime = self.runtime
        if get_ident() != runtime.thread:
            runtime.pass_on(self, message)
        elif (mail := self._mail) is not None:
            mail.append(message)
        else:
            mailboxes = runtime._mailboxes
            mail = self._mail = mailboxes.pop() if mailboxes else deque()
            mail.append(message)
            runtime._ready.append(self)
            if not runtime._scheduled:
                runtime._schedule()

    def stop(self) -> None:
        """End it, after the mail that it has by now."""
        self.tell(STOP)

    def arrive(self, message: object) -> None:
        """Handle what a socket brought at once; the processes that are woken by it have their turns later.

        So everything that all sockets bring in one round of the loop is filed before any queue takes its turn.  What
        arrives alone is served before this returns, with all that comes of it: at most once in a round, so that a busy
        socket cannot keep the loop from the others.
        """
        runtime = self.runtime
        runtime._arrivals += 1
        alone = runtime._arrivals == 1 and not (runtime._scheduled or runtime._gather_rounds)
        if alone:
            runtime._scheduled = True  # the turn comes right here, and nobody need ask the loop for it
        try:
            if self._mail is not DEAD:
                self.on_receive(message)
        except Exception as error:
            runtime.end(self, error)
        except BaseException:
            if alone:
                runtime._schedule()
            raise
        if alone:
            try:
                runtime._serve_turn()
            finally:
                if not runtime._scheduled:  # else the turn that comes ends the round
                    runtime._call_soon(runtime._end_round)
        elif not runtime._scheduled:
            runtime._schedule()  # it woke nobody, and this round must end all the same

    # What pykka expects of an actor -------------------------------------------------------------------------

    @cached_property
    def actor_urn(self) -> str:  # type: ignore[override]  # lazy: most processes have no ref
        """An id that is unique in the world."""
        return uuid4().urn

    @cached_property
    def actor_stopped(self) -> threading.Event:  # type: ignore[override]
        """An event that is set when nobody answers here any more."""
        event = threading.Event()
        if self.runtime.closed or not self.alive:
            event.set()
        return event

    @cached_property
    def actor_ref(self) -> pykka.ActorRef[Self]:
        """The ref by which others than actors of this runtime reach it; made when it is asked for, 2 KB."""
        ref = pykka.ActorRef(self)
        if not ref.actor_stopped.is_set():
            self.runtime.refs[self] = ref
        return ref

    @property
    def actor_inbox(self) -> Self:  # type: ignore[override]
        """Where its ref puts mail; a ref alone keeps its process in being, unlike those of other backends."""
        return self

    def put(self, envelope: Envelope[Any], /) -> None:
        """Take what a ref sends, from any thread; whoever asks is answered even if the process has ended."""
        if isinstance(envelope.reply_to, Future):
            envelope.reply_to.server = self.runtime
        self.tell(envelope)

    @classmethod
    def start(cls, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Refuse pykka's way to start: which runtime it would belong to is not known."""
        raise TypeError(f"start it by runtime.start({cls.__name__}, ...)")

    @staticmethod
    def _create_actor_inbox() -> NoReturn:
        raise TypeError("a process is its own inbox")

    @staticmethod
    def _create_future() -> Future[Any]:
        return Future()

    def _start_actor_loop(self) -> None:
        """Run on_start; the loop of all processes is the runtime's."""
        try:
            self.on_start()
        except Exception as error:
            self.runtime.end(self, error)

    def _stop(self) -> None:
        self.runtime.end(self, None)


class Runtime:
    """One run queue, with the monitors, groups and refs of its processes."""

    def __init__(
        self,
        call_soon: CallSoon | None = None,
        call_soon_threadsafe: CallSoon | None = None,
        turn_s: float = 0.005,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.thread = get_ident()  # the only one that serves; the mail of all others is passed on to it
        self.groups = Groups()
        self.links = Links()
        self.rounds = Rounds(self._ask_for_turn, clock)
        self.refs: dict[Process, pykka.ActorRef[Any]] = {}  # of living processes, if one was ever wanted
        self.closed = False
        # Counted for those who look.
        self.turns = 0
        self.turn_id = 0  # odd while a turn is under way, another number in each
        self.messages = 0  # handled; what was dropped or refused is not in it
        self.failures = 0
        self.longest_turn_s = 0.0
        # The loop and its rounds.
        self._has_loop = call_soon is not None
        self._call_soon: CallSoon = call_soon or _ask_nobody
        self._call_soon_threadsafe = call_soon_threadsafe
        self._turn_s = turn_s
        self._clock = clock
        self._arrivals = 0  # from sockets in this round; whoever makes it 1 has `_end_round` called
        self._gather_rounds = 0  # rounds left in which even a single arrival waits for the turn
        # The run queue.
        self._ready: deque[Process] = deque()  # those with mail, each once
        self._mailboxes: list[deque[Any]] = []  # empty ones, for those who get mail next
        self._scheduled = not self._has_loop  # a turn is under way or coming; without a loop nobody asks for one
        self._running = False  # a turn is under way
        self._dirty: list[Flushing] = []  # processes that have something to send at the end of the round
        self._foreign: deque[tuple[Process, object]] = deque()  # told by other threads, not yet in mailboxes
        self._foreign_called = False  # the loop was asked to look there

    def attach(self, loop: Loop) -> None:
        """Run on this loop from now on; called on the loop's thread."""
        self.thread = get_ident()
        self._has_loop = True
        self._call_soon = cast(CallSoon, loop.call_soon)
        self._call_soon_threadsafe = cast(CallSoon, loop.call_soon_threadsafe)
        self._scheduled = self._foreign_called = False
        self._arrivals = self._gather_rounds = 0
        if self._ready or self._dirty or self.rounds.waiting:
            self._schedule()
        if self._foreign:
            self._call_for_foreign()

    # Life of a process --------------------------------------------------------------------------------------

    def spawn(self, process_class: Callable[P, ProcessT], *args: P.args, **kwargs: P.kwargs) -> ProcessT:
        """Make a process and run its on_start; what its constructor raises is the caller's."""
        assert get_ident() == self.thread, "spawn on the runtime's own thread"
        made = cast(type[ProcessT], process_class)
        process = made.__new__(made)
        process.runtime = self  # before the constructor, which may tell and join already
        process._mail = None
        made.__init__(process, *args, **kwargs)
        process._start_actor_loop()
        return process

    def start(
        self, process_class: Callable[P, ProcessT], *args: P.args, **kwargs: P.kwargs
    ) -> pykka.ActorRef[ProcessT]:
        """Spawn a process and register it, as `start` of other actors of pykka does; return its ref."""
        return self.register(self.spawn(process_class, *args, **kwargs))

    def register(self, process: ProcessT) -> pykka.ActorRef[ProcessT]:
        """Let others find a process in pykka's registry until it ends; return its ref.

        The registry is a list that is searched: only for those that live as long as the runtime.
        """
        ref = process.actor_ref
        if process in self.refs:
            pykka.ActorRegistry.register(ref)
        return ref

    def end(self, process: Process, reason: BaseException | None) -> None:
        """End a process: drop its mail, run its last hook, forget it, tell those who watch."""
        if process._mail is DEAD:
            return
        mail, process._mail = process._mail or (), DEAD
        process.alive = False
        if reason is not None:
            process.unread = [message for message in mail if type(message) is not Envelope]
        try:
            reason = self._last_words(process, reason)
        finally:
            for message in mail:
                DEAD.append(message)
            self.groups.forget(process)
            self.links.end(process, reason)
            self._end_ref(process)

    def _last_words(self, process: Process, reason: BaseException | None) -> BaseException | None:
        if reason is None:
            try:
                process.on_stop()
            except Exception as error:
                reason = error
        if reason is not None:
            self.failures += 1
            logger.error("%r failed and was ended", process, exc_info=reason)
            try:
                process.on_failure(type(reason), reason, reason.__traceback__)
            except Exception as error:
                logger.error("%r failed once more, in on_failure", process, exc_info=error)
        return reason

    def _end_ref(self, process: Process) -> None:
        ref = self.refs.pop(process, None)
        if ref is not None:
            pykka.ActorRegistry.unregister(ref)
            ref.actor_stopped.set()

    def close(self) -> None:
        """Serve no more mail: files and sockets that processes use are about to be closed.

        No process can be reached by its ref any more, and whoever has asked one is refused.
        """
        self.closed = True
        self._scheduled = True  # so that nobody asks for a turn
        self._ready.clear()
        self._dirty.clear()
        for process in list(self.refs):
            self._end_ref(process)
            while process._mail:
                DEAD.append(process._mail.popleft())
        self._take_foreign()

    @property
    def idle(self) -> bool:
        """True while no process has mail."""
        return not (self._ready or self._dirty or self._foreign)

    def monitor(self, watcher: Process, target: Process, tag: Any = None) -> None:
        """Tell watcher Down(target, reason, tag) once, when target ends or at once if it has ended."""
        self.links.monitor(watcher, target, tag)

    def demonitor(self, watcher: Process, target: Process) -> None:
        """Take a monitor back."""
        self.links.demonitor(watcher, target)

    # Mail of other threads, and of many --------------------------------------------------------------------------

    def pass_on(self, process: Process, message: object) -> None:
        """Take a message from another thread.

        The message is put down before the flags are read, and who clears or sets them looks afterwards: so a thread
        that finds a turn asked for knows that its message will be seen.
        """
        self._foreign.append((process, message))
        if self.closed:
            self._take_foreign()
        elif not self._foreign_called:
            self._call_for_foreign()

    def _call_for_foreign(self) -> None:
        if self._call_soon_threadsafe is not None:
            self._foreign_called = True  # before the call, or the answer to it could be overwritten
            try:
                self._call_soon_threadsafe(self._foreign_turn)
            except RuntimeError:  # the loop is closed; the teller must know
                self._foreign_called = False
                raise

    def _foreign_turn(self) -> None:
        """Serve what other threads told at once, unless a turn is coming anyway."""
        self._foreign_called = False
        coming = self._scheduled
        self._scheduled = True
        self._take_foreign()
        if not coming:
            self._turn()

    def _take_foreign(self) -> None:
        while self._foreign:
            process, message = self._foreign.popleft()
            (DEAD.append if self.closed else process.tell)(message)

    def tell_each(self, mail: Iterable[tuple[Process, object]]) -> None:
        """Tell many processes, each something of its own; on the runtime's own thread."""
        assert get_ident() == self.thread, "tell one by one from other threads"
        ready, mailboxes = self._ready, self._mailboxes
        for process, message in mail:
            box = process._mail
            if box is None:  # `tell` spelled out: where it matters they are thousands
                box = process._mail = mailboxes.pop() if mailboxes else deque()
                ready.append(process)
            box.append(message)
        if ready and not self._scheduled:
            self._schedule()

    # Steps and flushes ------------------------------------------------------------------------------------------

    def run_in(self, process: Process, step: Callable[..., object], *args: Any) -> bool:
        """Run a step of a process now, in its name: what it raises ends that process, not the caller.

        Return False if that happened, or if the process has ended before.
        """
        if process._mail is DEAD:
            return False
        try:
            step(*args)
        except Exception as error:
            self.end(process, error)
            return False
        return True

    def flush_later(self, process: Flushing) -> None:
        """Have a process send what it has at the end of the round."""
        self._dirty.append(process)
        if not self._scheduled:
            self._schedule()

    def flush(self) -> None:
        """Have everybody who has something to send send it now."""
        while self._dirty:
            dirty, self._dirty = self._dirty, []
            for process in dirty:
                try:
                    if process.alive:
                        process.flush()
                except Exception as error:
                    self.end(cast(Process, process), error)
                except BaseException:
                    # All of them flush again: those that have done so have nothing more to send.
                    self._dirty += dirty
                    raise

    # Turns --------------------------------------------------------------------------------------------------

    def is_last(self, process: Process) -> bool:
        """Tell whether a process, in its last message, is the only one that has anything to do."""
        return not (self._ready or process._mail)

    def run_until_idle(self, messages_max: int = MESSAGES_UNTIL_IDLE_MAX) -> None:
        """Serve all mail, and the mail that comes of it, without a loop."""
        assert get_ident() == self.thread, "run it on the runtime's own thread"
        assert not self._running, "a turn cannot begin within a turn"
        end = self.messages + messages_max
        self._take_foreign()
        while (self._ready or self._dirty) and not self.closed:
            self._serve_turn()
            self._take_foreign()
            if self._ready and self.messages >= end:
                raise NeverIdle(f"{messages_max} messages were handled and there is still mail")

    def _ask_for_turn(self) -> None:
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._call_soon(self._turn)

    def _turn(self) -> None:
        """Begin a round: let doors that wait bring their share, then serve."""
        if self.closed:
            return
        self._end_round()
        try:
            if self.rounds.waiting and not (self._ready and self.turns % PATIENCE_TURNS):
                self.rounds.serve()
        finally:
            self._serve_turn()

    def _end_round(self) -> None:
        """Learn whether what arrives comes alone or together with other things."""
        if self._arrivals > 1:
            self._gather_rounds = GATHER_ROUNDS
        elif self._arrivals and self._gather_rounds:
            self._gather_rounds -= 1
        self._arrivals = 0
        self.rounds.left = ROUND_COMMANDS_MIN if self._ready else ROUND_COMMANDS_MAX

    def _serve_turn(self) -> None:
        """Serve processes for turn_s and have them flush, then let the loop look at its sockets.

        An Exception ends the process that raises it; anything worse goes through, and loses nobody's mail.
        """
        assert not self._running, "a turn cannot begin within a turn"
        self._running = True
        self.turn_id += 1
        ready, mailboxes, clock = self._ready, self._mailboxes, self._clock
        started_s = now_s = clock()
        until_s = started_s + self._turn_s
        try:
            while now_s < until_s:
                while ready and now_s < until_s:
                    process = ready.popleft()
                    mail = process._mail
                    assert mail is not None
                    if mail is DEAD:  # it ended while it stood here: in on_start, after telling itself
                        continue
                    try:
                        if len(mail) == 1 and type(mail[0]) is not Envelope:  # so with nearly all, where there are many
                            self.messages += 1
                            process.on_receive(mail.popleft())
                        else:
                            self._serve_several(process, mail)
                    except Exception as error:
                        self.end(process, error)
                    finally:
                        if process._mail is mail:
                            if mail:
                                ready.append(process)
                            else:
                                process._mail = None
                                if len(mailboxes) < MAILBOXES_MAX:
                                    mailboxes.append(mail)
                    now_s = clock()
                if not self._dirty:
                    break
                self.flush()  # a flush may file what stood behind an outcome, and so wake queues again
        finally:
            self._running = False
            self.turn_id += 1
            self.turns += 1
            self.longest_turn_s = max(self.longest_turn_s, clock() - started_s)
            self._scheduled = self.closed or not self._has_loop
            if not self._scheduled and (ready or self._dirty or self.rounds.waiting):
                self._schedule()

    def _serve_several(self, process: Process, mail: deque[Any]) -> None:
        """Have it handle what is in its mailbox, at most MAIL_BUDGET of it, and nothing behind its end."""
        receive = process.on_receive
        budget = left = min(len(mail), MAIL_BUDGET)
        try:
            while left and mail:  # it is empty if the runtime was closed
                left -= 1
                message = mail.popleft()
                if type(message) is Envelope:
                    self._open(process, message)
                    if process._mail is not mail:
                        break
                else:
                    receive(message)
        finally:
            self.messages += budget - left

    def _open(self, process: Process, envelope: Envelope[Any]) -> None:
        """Have it handle what a ref has sent; an exception is the asker's, and ends the process like any other."""
        future = envelope.reply_to
        try:
            answer = process._handle_receive(envelope.message)  # pykka knows stops and proxies
        except BaseException as error:
            if future is not None:
                told = (
                    error if isinstance(error, Exception) else RuntimeError(f"{process!r} was interrupted: {error!r}")
                )
                future.set_exception((type(told), told, told.__traceback__))
            raise
        if future is not None:
            future.set(answer)
