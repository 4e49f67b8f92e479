"""Histories written by hand: every promise broken in every way that we thought of, and some that only look broken.

    @bad(rule), @good --> Collection    writer(Run) --> a history

Each bad one must be caught by its rule; a writer never looks at the checker's verdict.
"""

from collections.abc import Callable
from typing import Unpack

from tests.helpers.histories.checker import Report, check
from tests.helpers.histories.history import History, Kind, Phase, Said

DIGEST = 7  # of every body that is not spoilt


class Run:
    """Writes a history by hand; times are seconds, every operation takes 0.1 s unless told otherwise."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.history = History(clock=lambda: self.now_s)

    def publish(
        self, task: str, /, at_s: float = 0.0, *, end: Phase = "ok", end_s: float | None = None, **said: Unpack[Said]
    ) -> None:
        """Its queue is `q` and its uid `u-` and the task, unless it is said otherwise."""
        uid = said.pop("uid", f"u-{task}")
        self.now_s = at_s
        told: Said = {"task": task, "queue": "q", "digest": DIGEST, **said}
        op = self.history.invoke("publish", **told)
        self._end("publish", op, end, at_s + 0.1 if end_s is None else end_s, task=task, uid=uid)

    def deliver(
        self,
        *tasks: str,
        at_s: float = 1.0,
        end_s: float | None = None,
        count: int = 0,
        lease: str = "",
        uid: str = "",
        digest: int = DIGEST,
        queue: str = "q",
    ) -> None:
        self.now_s = at_s
        op = self.history.invoke("deliver", queue=queue)
        self.now_s = at_s + 0.1 if end_s is None else end_s
        for task in tasks:
            self.history.ok(
                "deliver",
                op,
                task=task,
                queue=queue,
                uid=uid or f"u-{task}",
                lease=lease or f"L{count}",
                error_count=count,
                digest=digest,
            )

    def fetch_lost(self, at_s: float, queue: str = "q") -> None:
        self.now_s = at_s
        self.history.unknown("deliver", self.history.invoke("deliver", queue=queue))

    def settle(
        self,
        kind: Kind,
        task: str,
        at_s: float = 2.0,
        *,
        end: Phase = "ok",
        lease: str = "",
        known: bool = True,
        delay_s: float = 0,
        timeout_s: float = 60,
        queue: str = "q",
    ) -> None:
        self.now_s = at_s
        op = self.history.invoke(
            kind, task=task, queue=queue, uid=f"u-{task}", lease=lease, delay_s=delay_s, timeout_s=timeout_s
        )
        self._end(kind, op, end, at_s + 0.1, task=task, known=known)

    def ack(
        self,
        task: str,
        at_s: float = 2.0,
        *,
        end: Phase = "ok",
        lease: str = "",
        known: bool = True,
        queue: str = "q",
    ) -> None:
        self.settle("ack", task, at_s, end=end, lease=lease, known=known, queue=queue)

    def work_off(self, task: str, at_s: float, *, count: int = 0, uid: str = "", queue: str = "q") -> None:
        """Let it be delivered at that moment, and acknowledged a second later."""
        self.deliver(task, at_s=at_s, count=count, uid=uid, queue=queue)
        self.ack(task, at_s + 1, queue=queue)

    def crash(self, at_s: float) -> None:
        self.now_s = at_s
        self.history.crash()

    def end_at(self, at_s: float) -> None:
        """Let the run go on until then, with something of no importance."""
        self.fetch_lost(at_s, queue="another")

    def _end(
        self, kind: Kind, op: int, end: Phase, end_s: float, *, task: str, uid: str = "", known: bool = True
    ) -> None:
        self.now_s = end_s
        if end == "ok":
            self.history.ok(kind, op, task=task, uid=uid, known=known)
        elif end == "fail":
            self.history.fail(kind, op)
        elif end == "unknown":
            self.history.unknown(kind, op)

    def report(self) -> Report:
        return check(self.history.events)


Writer = Callable[[Run], None]


class Collection:
    """Hand-made histories: those that break a rule, and those that only look odd."""

    def __init__(self) -> None:
        self.broken: list[tuple[str, str, Writer]] = []  # rule, name
        self.whole: list[tuple[str, Writer]] = []  # name

    def bad(self, rule: str) -> Callable[[Writer], Writer]:
        """Keep a history that breaks `rule`."""

        def keep(write: Writer) -> Writer:
            self.broken.append((rule, write.__name__, write))
            return write

        return keep

    def good(self, write: Writer) -> Writer:
        """Keep a history that looks odd and is correct."""
        self.whole.append((write.__name__, write))
        return write
