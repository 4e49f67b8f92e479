"""Runtime: the run queue on which all light processes of one loop take turns.

    tell --> mailbox, run queue --> turn (on the loop, at most turn_s) --> on_receive ... on_stop, Down

It gives every process with mail its share, so that a busy one starves neither the others nor the sockets.  It
makes and ends processes and keeps their names, monitors and groups.  It must never block.  It knows its event loop
only through `call_soon`; without a loop, `run_until_idle` serves the mail.  Two runtimes share nothing.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from threading import get_ident
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from wakeq.actors.runtime.groups import Groups
from wakeq.actors.runtime.links import Links
from wakeq.actors.runtime.process import DEAD, Envelope, Process
from wakeq.actors.runtime.rounds import ROUND_COMMANDS_MAX, ROUND_COMMANDS_MIN, Rounds

P = ParamSpec("P")
ProcessT = TypeVar("ProcessT", bound=Process)

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

logger = logging.getLogger("wakeq.runtime")


class Loop(Protocol):
    """The part of an event loop that a runtime needs."""

    def call_soon(self, callback: Callable[[], object]) -> object:
        """Run callback in the next round of the loop."""

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> object:
        """The same, from any thread."""


class Flushing(Protocol):
    """A process that gathers what it has to send."""

    def flush(self) -> None:
        """Send it, in one write."""


CallSoon = Callable[[Callable[[], None]], object]


class NeverIdle(RuntimeError):
    """Processes kept each other busy beyond the bound of run_until_idle."""


class NameTaken(ValueError):
    """A living process has that name."""


class Runtime:
    """One run queue, with the names, monitors and groups of its processes.

    `_scheduled` is True if a turn is under way or scheduled.  `_arrivals` counts what came from outside in this round
    of the loop; whoever makes it 1 schedules `_end_round`.
    """

    def __init__(
        self,
        call_soon: CallSoon | None = None,
        call_soon_threadsafe: CallSoon | None = None,
        turn_s: float = 0.005,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.thread = get_ident()
        self.groups = Groups()
        self.links = Links()
        self.turns = 0
        self.turn_id = 0  # odd while a turn is under way, another number in each
        self.messages = 0  # handled; what was dropped or refused is not in it
        self.failures = 0
        self.longest_turn_s = 0.0
        self._call_soon = call_soon
        self._call_soon_threadsafe = call_soon_threadsafe
        self._turn_s = turn_s
        self._clock = clock
        self._ready: deque[Process] = deque()
        self._mailboxes: list[deque[object]] = []  # empty ones, for those who get mail next
        self._scheduled = call_soon is None  # without a loop nobody needs to ask for a turn
        self._running = False
        self._closed = False
        self._dirty: list[Flushing] = []  # processes that have something to send at the end of the round
        self._arrivals = 0
        self._gather_rounds = 0  # rounds left in which even a single arrival waits for the turn
        self.rounds = Rounds(self._ask_for_turn, clock)
        self._foreign: deque[tuple[Process, object]] = deque()  # told by other threads, not yet in mailboxes
        self._foreign_called = False
        self.named: dict[Hashable, Process] = {}  # living processes by name
        self._names_of: dict[Process, tuple[Hashable, ...]] = {}

    def attach(self, loop: Loop) -> None:
        """Run on this loop from now on; called on the loop's thread."""
        self.thread = get_ident()
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
        process.runtime = self  # before the constructor, which may tell, join and register already
        process._mail = None
        made.__init__(process, *args, **kwargs)
        process._start_actor_loop()
        return process

    def begin(self, process: Process) -> None:
        """Run on_start; if it raises, that is a failure of the process."""
        try:
            process.on_start()
        except Exception as error:
            self.end(process, error)

    def end(self, process: Process, reason: BaseException | None) -> None:
        """End a process: drop its mail, run its last hook, forget it, tell those who watch."""
        if process._mail is DEAD:
            return
        mail, process._mail = process._mail, DEAD
        if reason is not None:
            process.unread = [message for message in mail or () if type(message) is not Envelope]
        try:
            reason = self._last_words(process, reason)
        finally:
            for message in mail or ():
                if type(message) is Envelope:
                    message.refuse(process)
            for name in self._names_of.pop(process, ()):
                del self.named[name]
            self.groups.forget(process)
            self.links.end(process, reason)
            stopped = process.__dict__.get("actor_stopped")
            if stopped is not None:
                stopped.set()

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

    def close(self) -> None:
        """Serve no more mail: files and sockets that processes use are about to be closed."""
        self._closed = True
        self._scheduled = True  # so that nobody asks for a turn
        self._ready.clear()
        self._dirty.clear()

    @property
    def idle(self) -> bool:
        """True while no process has mail."""
        return not (self._ready or self._dirty or self._foreign)

    # Names and monitors -------------------------------------------------------------------------------------

    def register(self, name: Hashable, process: Process) -> None:
        """Give process a name, until it ends; nothing happens if it has ended."""
        if not process.alive or self.named.get(name) is process:
            return
        if name in self.named:
            raise NameTaken(f"{name!r} is the name of {self.named[name]!r}")
        self.named[name] = process
        self._names_of[process] = (*self._names_of.get(process, ()), name)

    def whereis(self, name: Hashable) -> Process | None:
        """Return the living process of that name."""
        return self.named.get(name)

    def monitor(self, watcher: Process, target: Process, tag: Any = None) -> None:
        """Tell watcher Down(target, reason, tag) once, when target ends or at once if it has ended."""
        self.links.monitor(watcher, target, tag)

    def demonitor(self, watcher: Process, target: Process) -> None:
        """Take a monitor back."""
        self.links.demonitor(watcher, target)

    # Mail that arrives --------------------------------------------------------------------------------------

    def wake(self, process: Process, message: object) -> None:
        """Give an idle process a mailbox with its first message, and a place on the run queue."""
        mail = self._mailboxes.pop() if self._mailboxes else deque()
        process._mail = mail
        mail.append(message)
        self._ready.append(process)
        if not self._scheduled:
            self._schedule()

    def tell_each(self, mail: Iterable[tuple[Process, object]]) -> None:
        """Tell many processes, each something of its own; on the runtime's own thread."""
        assert get_ident() == self.thread, "tell one by one from other threads"
        ready, mailboxes = self._ready, self._mailboxes
        for process, message in mail:
            box = process._mail
            if box is None:  # `wake` spelled out: where it matters they are thousands
                box = process._mail = mailboxes.pop() if mailboxes else deque()
                ready.append(process)
            box.append(message)
        if ready and not self._scheduled:
            self._schedule()

    def arrive(self, process: Process, message: object) -> None:
        """Take what a socket brought.  What arrives alone is handled before this returns, with all that comes of it.

        At most once in a round of the loop, so that a busy socket cannot keep the loop from the others.
        """
        self._arrivals += 1
        if self._arrivals > 1 or self._scheduled or self._gather_rounds:
            process.tell(message)
            return
        assert self._call_soon is not None, "without a loop a turn is always coming"
        self._scheduled = True
        process.tell(message)
        try:
            self._serve_turn()
        finally:
            if not self._scheduled:  # else the turn that comes ends the round
                self._call_soon(self._end_round)

    def receive(self, process: Process, message: object) -> None:
        """The same for a process that files what came: it runs at once, and those that it wakes have their turns later.

        So everything that all sockets bring in one round of the loop is filed before any queue takes its turn.
        """
        self._arrivals += 1
        if self._arrivals > 1 or self._scheduled or self._gather_rounds:
            self.run_in(process, process.on_receive, message)
            if not self._scheduled:
                self._schedule()  # it woke nobody, and this round must end all the same
            return
        assert self._call_soon is not None, "without a loop a turn is always coming"
        self._scheduled = True
        try:
            self.run_in(process, process.on_receive, message)
            self._serve_turn()
        finally:
            if not self._scheduled:  # else the turn that comes ends the round
                self._call_soon(self._end_round)

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

    def flush_later(self, process: "Flushing") -> None:
        """Have a process send what it has at the end of the round."""
        self._dirty.append(process)
        if not self._scheduled:
            self._schedule()

    def flush(self) -> None:
        """Have everybody who has something to send send it now."""
        while self._dirty:
            dirty, self._dirty = self._dirty, []
            for process in dirty:
                self.run_in(process, process.flush)  # type: ignore[arg-type]

    def _end_round(self) -> None:
        """Learn whether what arrives comes alone or together with other things."""
        if self._arrivals > 1:
            self._gather_rounds = GATHER_ROUNDS
        elif self._arrivals and self._gather_rounds:
            self._gather_rounds -= 1
        self._arrivals = 0
        self.rounds.left = ROUND_COMMANDS_MIN if self._ready else ROUND_COMMANDS_MAX

    def _ask_for_turn(self) -> None:
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        if self._call_soon is not None:
            self._call_soon(self._turn)

    def hand_over(self, process: Process, message: object) -> None:
        """Take a message from another thread.

        The message is put down before the flag is read, and `_foreign_turn` clears the flag before it looks:
        so a thread that finds the flag set knows that its message will be seen.
        """
        self._foreign.append((process, message))
        if not self._foreign_called:
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
        for _ in range(len(self._foreign)):
            process, message = self._foreign.popleft()
            if type(message) is Envelope:
                process.post(message)
            else:
                process.tell(message)

    # Turns --------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._end_round()
        self._serve_turn()

    def _serve_turn(self) -> None:
        """Serve processes for turn_s, then let the loop look at its sockets."""
        if self._closed:
            return
        try:
            if self.rounds.waiting and not (self._ready and self.turns % PATIENCE_TURNS):
                self.rounds.serve()
            self._serve_until(self._clock() + self._turn_s)
        finally:  # also after a KeyboardInterrupt: the others' mail must not wait for ever
            self._scheduled = False
            if self._ready or self._dirty or self.rounds.waiting:
                self._schedule()

    def is_last(self, process: Process) -> bool:
        """Tell whether a process, in its last message, is the only one that has anything to do."""
        return not (self._ready or process._mail)

    def run_until_idle(self, messages_max: int = MESSAGES_UNTIL_IDLE_MAX) -> None:
        """Serve all mail, and the mail that comes of it, without a loop."""
        assert get_ident() == self.thread, "run it on the runtime's own thread"
        assert not self._running, "a turn cannot begin within a turn"
        end = self.messages + messages_max
        self._take_foreign()
        while self._ready or self._dirty:
            self._serve_until(self._clock() + self._turn_s)
            self._take_foreign()
            if self._ready and self.messages >= end:
                raise NeverIdle(f"{messages_max} messages were handled and there is still mail")

    def _serve_until(self, deadline_s: float) -> None:
        assert not self._running, "a turn cannot begin within a turn"
        self._running = True
        self.turn_id += 1
        ready, serve, clock = self._ready, self._serve, self._clock
        started_s = now_s = clock()
        try:
            while now_s < deadline_s:
                while ready and now_s < deadline_s:
                    serve(ready.popleft())
                    now_s = clock()
                if not self._dirty:
                    break
                self.flush()  # a flush may file what stood behind an outcome, and so wake queues again
        finally:
            self._running = False
            self.turn_id += 1
            self.turns += 1
            self.longest_turn_s = max(self.longest_turn_s, clock() - started_s)

    def _serve(self, process: Process) -> None:
        """Give one process its share; an Exception ends this process only, anything worse goes through."""
        mail = process._mail
        assert mail is not None
        if mail is DEAD:  # it ended while it stood on the run queue: in on_start, after telling itself
            return
        try:
            if len(mail) == 1 and type(mail[0]) is not Envelope:  # so it is with nearly all, where there are many
                self.messages += 1
                process.on_receive(mail.popleft())
            else:
                self._serve_several(process, mail)
        except Exception as error:
            self.end(process, error)
        finally:
            if process._mail is mail:
                if mail:
                    self._ready.append(process)
                else:
                    process._mail = None
                    if len(self._mailboxes) < MAILBOXES_MAX:
                        self._mailboxes.append(mail)

    def _serve_several(self, process: Process, mail: deque[Any]) -> None:
        """Have it handle what is in its mailbox, at most MAIL_BUDGET of it, and nothing behind its end."""
        receive = process.on_receive
        budget = left = min(len(mail), MAIL_BUDGET)
        try:
            while left:
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

    def _open(self, process: Process, envelope: Envelope) -> None:
        """Handle a stop, an ask, or what a ref of pykka's has sent."""
        reply = envelope.reply
        try:
            answer = None
            if envelope.stops:
                self.end(process, None)
            else:
                answer = process._handle_receive(envelope.message)
        except Exception as error:
            if reply is not None:
                reply.set_exception(error)
            raise
        except BaseException as error:
            if reply is not None:
                reply.set_exception(RuntimeError(f"{process!r} was interrupted by {error!r}"))
            raise
        if reply is not None:
            reply.set(answer)
