"""Histories written by hand: every promise broken in every way that we thought of, and some that only look broken.

    BAD: (rule, name, writer)    GOOD: (name, writer)    writer(Run) --> a history

Each bad one must be caught by its rule; a writer never looks at the checker's verdict.
"""

from collections.abc import Callable

from tests.helpers.checker import Report, check
from tests.helpers.history import History, Kind, Phase


class Run:
    """Writes a history by hand; times are seconds, every operation takes 0.1 s unless told otherwise."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.history = History(clock=lambda: self.now_s)

    def publish(
        self,
        task: str,
        at_s: float = 0.0,
        *,
        end: Phase = "ok",
        end_s: float | None = None,
        uid: str = "",
        queue: str = "q",
        priority: int = 0,
        delay_s: float = 0,
        timeout_s: float = 60,
        expires_s: float = 0,
        publish_id: str = "",
        batch: int = 0,
        max_deliveries: int = 0,
        dead_letter: str = "",
        strict: bool = False,
    ) -> None:
        self.now_s = at_s
        op = self.history.publish_invoked(
            task=task,
            queue=queue,
            digest=7,
            priority=priority,
            delay_s=delay_s,
            timeout_s=timeout_s,
            expires_s=expires_s,
            publish_id=publish_id,
            batch=batch,
            max_deliveries=max_deliveries,
            dead_letter=dead_letter,
            strict=strict,
        )
        self._end("publish", op, end, at_s + 0.1 if end_s is None else end_s, task=task, uid=uid or f"u-{task}")

    def deliver(
        self,
        *tasks: str,
        at_s: float = 1.0,
        end_s: float | None = None,
        count: int = 0,
        lease: str = "",
        uid: str = "",
        digest: int = 7,
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
BAD: list[tuple[str, str, Writer]] = []
GOOD: list[tuple[str, Writer]] = []


def bad(rule: str) -> Callable[[Writer], Writer]:
    """Keep a hand-made history that breaks `rule`."""

    def keep(write: Writer) -> Writer:
        BAD.append((rule, write.__name__, write))
        return write

    return keep


def good(write: Writer) -> Writer:
    """Keep a hand-made history that looks odd and is correct."""
    GOOD.append((write.__name__, write))
    return write


# Q1 ---------------------------------------------------------------------------------------------------------


@bad("Q1")
def published_and_never_seen(run: Run) -> None:
    run.publish("a")


@bad("Q1")
def delivered_and_never_acknowledged_nor_there(run: Run) -> None:
    run.publish("a")
    run.deliver("a")


@bad("Q1")
def unknown_publish_was_delivered_once_and_is_gone(run: Run) -> None:
    run.publish("a", end="unknown")
    run.deliver("a")


@bad("Q1")
def only_half_of_a_batch_is_there(run: Run) -> None:
    run.publish("a", end="unknown", batch=1)
    run.publish("b", end="unknown", batch=1)
    run.deliver("a")
    run.ack("a")


@bad("Q1")
def one_of_a_confirmed_batch_is_missing(run: Run) -> None:
    run.publish("a", batch=1)
    run.publish("b", batch=1)
    run.deliver("a")
    run.ack("a")


@bad("Q1")
def nacked_and_never_seen_again(run: Run) -> None:
    run.publish("a")
    run.deliver("a")
    run.settle("nack", "a")


@bad("Q1")
def a_refused_ack_is_no_ack(run: Run) -> None:
    run.publish("a")
    run.deliver("a")
    run.ack("a", end="fail")


@bad("Q1")
def the_first_ack_is_told_that_it_is_gone(run: Run) -> None:
    run.publish("a")
    run.deliver("a")
    run.ack("a", known=False)


@bad("Q1")
def called_gone_while_it_was_there(run: Run) -> None:
    run.publish("a")
    run.deliver("a")
    run.ack("a", known=False)
    run.ack("a", at_s=3)


@bad("Q1")
def gone_before_its_expiry(run: Run) -> None:
    run.publish("a", expires_s=100)
    run.end_at(50)


@bad("Q1")
def lost_by_a_crash(run: Run) -> None:
    run.publish("a")
    run.crash(0.2)
    run.end_at(100)


@bad("Q1")
def dead_lettered_and_lost_there(run: Run) -> None:
    run.publish("a", max_deliveries=1, dead_letter="d")
    run.deliver("a")
    run.deliver("a", at_s=70, queue="d", uid="dead-a")


@bad("Q1")
def deliveries_used_up_and_no_dead_letter(run: Run) -> None:
    run.publish("a", max_deliveries=1, dead_letter="d")
    run.deliver("a")
    run.end_at(200)


# Q2 ---------------------------------------------------------------------------------------------------------


@bad("Q2")
def nobody_published_it(run: Run) -> None:
    run.deliver("ghost")


@bad("Q2")
def delivered_before_its_publish_was_sent(run: Run) -> None:
    run.deliver("a", at_s=0.0)
    run.publish("a", at_s=5.0)
    run.ack("a", at_s=6.0)


@bad("Q2")
def the_body_was_changed(run: Run) -> None:
    run.publish("a")
    run.deliver("a", digest=8)
    run.ack("a")


@bad("Q2")
def a_refused_publish_was_delivered(run: Run) -> None:
    run.publish("a", end="fail")
    run.deliver("a")
    run.ack("a")


@bad("Q2")
def delivered_from_another_queue(run: Run) -> None:
    run.publish("a")
    run.deliver("a", queue="r")
    run.ack("a")


@bad("Q2")
def delivered_under_another_uid_than_promised(run: Run) -> None:
    run.publish("a", uid="u1")
    run.deliver("a", uid="u2")
    run.ack("a")


@bad("Q2")
def redelivered_under_another_uid(run: Run) -> None:
    run.publish("a", end="unknown")
    run.deliver("a", uid="u1")
    run.deliver("a", at_s=70, count=1, uid="u2")
    run.ack("a", at_s=71)


@bad("Q2")
def two_messages_have_one_uid(run: Run) -> None:
    for task in "ab":
        run.publish(task, uid="u")
        run.deliver(task, uid="u")
        run.ack(task)


# Q3 ---------------------------------------------------------------------------------------------------------


@bad("Q3")
def delivered_after_a_confirmed_ack(run: Run) -> None:
    run.publish("a")
    run.deliver("a")
    run.ack("a", at_s=2)
    run.deliver("a", at_s=70, count=1)


@bad("Q3")
def an_ack_came_back_after_a_crash(run: Run) -> None:
    run.publish("a")
    run.deliver("a")
    run.ack("a", at_s=2)
    run.crash(2.2)
    run.deliver("a", at_s=3, count=1)
    run.ack("a", at_s=4)


@bad("Q3")
def delivered_after_it_was_called_gone(run: Run) -> None:
    run.publish("a")
    run.deliver("a")
    run.ack("a", at_s=2, end="unknown")
    run.ack("a", at_s=3, known=False)
    run.deliver("a", at_s=70, count=1)


@bad("Q3")
def a_dead_letter_came_back_after_its_ack(run: Run) -> None:
    run.publish("a", max_deliveries=1, dead_letter="d")
    run.deliver("a")
    run.deliver("a", at_s=70, queue="d", uid="dead-a")
    run.ack("a", at_s=71, queue="d")
    run.deliver("a", at_s=140, queue="d", uid="dead-a", count=1)


# Q4 ---------------------------------------------------------------------------------------------------------


@bad("Q4")
def two_holders_within_the_timeout(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1)
    run.deliver("a", at_s=30, count=1)
    run.ack("a", at_s=31)


@bad("Q4")
def the_timeout_of_the_message_was_not_used(run: Run) -> None:
    run.publish("a", timeout_s=600)
    run.deliver("a", at_s=1)
    run.deliver("a", at_s=62, count=1)
    run.ack("a", at_s=63)


@bad("Q4")
def a_touch_was_forgotten(run: Run) -> None:
    run.publish("a", timeout_s=10)
    run.deliver("a", at_s=1, lease="L")
    run.settle("touch", "a", at_s=5, lease="L", timeout_s=60)
    run.deliver("a", at_s=20, count=1)
    run.ack("a", at_s=21)


@bad("Q4")
def a_refused_nack_let_it_go(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1)
    run.settle("nack", "a", at_s=2, end="fail")
    run.deliver("a", at_s=3, count=1)
    run.ack("a", at_s=4)


@bad("Q4")
def a_restart_dropped_the_lease(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1)
    run.crash(10)
    run.deliver("a", at_s=11, count=1)
    run.ack("a", at_s=12)


@bad("Q4")
def a_strict_queue_forgot_a_delivery_in_a_crash(run: Run) -> None:
    run.publish("a", strict=True)
    run.deliver("a", at_s=1)
    run.crash(1.11)
    run.deliver("a", at_s=2, count=1)
    run.ack("a", at_s=3)


# Q5, Q6 -----------------------------------------------------------------------------------------------------


@bad("Q5")
def delivered_before_its_delay(run: Run) -> None:
    run.publish("a", delay_s=5)
    run.deliver("a", at_s=4)
    run.ack("a", at_s=6)


@bad("Q5")
def a_restart_forgot_the_delay(run: Run) -> None:
    run.publish("a", delay_s=3600)
    run.crash(1)
    run.deliver("a", at_s=2)
    run.ack("a", at_s=3)


@bad("Q5")
def delivered_before_the_delay_of_its_nack(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1, lease="L")
    run.settle("nack", "a", at_s=2, lease="L", delay_s=10)
    run.deliver("a", at_s=5, count=1)
    run.ack("a", at_s=6)


@bad("Q6")
def delivered_after_its_expiry(run: Run) -> None:
    run.publish("a", expires_s=10)
    run.deliver("a", at_s=12)
    run.ack("a", at_s=13)


@bad("Q6")
def a_redelivery_made_the_expiry_grow(run: Run) -> None:
    run.publish("a", expires_s=10, timeout_s=5)
    run.deliver("a", at_s=1)
    run.deliver("a", at_s=15, count=1)
    run.ack("a", at_s=16)


# Q7, Q8 -----------------------------------------------------------------------------------------------------


@bad("Q7")
def the_attempt_did_not_grow(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1)
    run.deliver("a", at_s=70, count=0)
    run.ack("a", at_s=71)


@bad("Q7")
def the_attempt_fell_back(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1, count=0)
    run.deliver("a", at_s=70, count=1)
    run.deliver("a", at_s=140, count=0)
    run.ack("a", at_s=141)


@bad("Q7")
def an_attempt_was_seen_by_nobody(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1, count=1)
    run.ack("a", at_s=2)


@bad("Q7")
def more_attempts_are_missing_than_fetches_were_lost(run: Run) -> None:
    run.publish("a")
    run.fetch_lost(0.5)
    run.deliver("a", at_s=70, count=2)
    run.ack("a", at_s=71)


@bad("Q7")
def the_count_wrapped_at_256(run: Run) -> None:
    run.publish("a", timeout_s=5)
    for count in range(256):
        run.deliver("a", at_s=1 + 6.0 * count, count=count)
    run.deliver("a", at_s=2000, count=0)
    run.ack("a", at_s=2001)


@bad("Q8")
def delivered_more_often_than_allowed(run: Run) -> None:
    run.publish("a", max_deliveries=2, dead_letter="d")
    for count in range(3):
        run.deliver("a", at_s=1 + 70.0 * count, count=count)
    run.ack("a", at_s=142)


@bad("Q8")
def dead_lettered_twice(run: Run) -> None:
    run.publish("a", max_deliveries=1, dead_letter="d")
    run.deliver("a")
    run.deliver("a", at_s=70, queue="d", uid="d1")
    run.deliver("a", at_s=71, queue="d", uid="d2", count=1)
    run.ack("a", at_s=72, queue="d")


@bad("Q8")
def dead_lettered_and_still_in_its_queue(run: Run) -> None:
    run.publish("a", max_deliveries=2, dead_letter="d")
    run.deliver("a", at_s=1)
    run.fetch_lost(65)
    run.deliver("a", at_s=130, queue="d", uid="d1")
    run.deliver("a", at_s=140, count=1)
    run.ack("a", at_s=141, queue="d")


@bad("Q8")
def acknowledged_and_dead_lettered(run: Run) -> None:
    run.publish("a", max_deliveries=1, dead_letter="d")
    run.deliver("a")
    run.ack("a", at_s=2)
    run.deliver("a", at_s=70, queue="d", uid="d1")
    run.ack("a", at_s=71, queue="d")


@bad("Q8")
def dead_lettered_too_early(run: Run) -> None:
    run.publish("a", max_deliveries=3, dead_letter="d")
    run.deliver("a", at_s=1)
    run.deliver("a", at_s=70, queue="d", uid="d1")
    run.ack("a", at_s=71, queue="d")


# Q9, Q10, Q11 -----------------------------------------------------------------------------------------------


@bad("Q9")
def one_receipt_was_acknowledged_twice(run: Run) -> None:
    run.publish("a")
    run.deliver("a", lease="L")
    run.ack("a", at_s=2, lease="L")
    run.ack("a", at_s=3, lease="L")


@bad("Q9")
def an_older_receipt_was_accepted(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1, lease="L1")
    run.deliver("a", at_s=70, lease="L2", count=1)
    run.ack("a", at_s=71, lease="L1")


@bad("Q9")
def both_holders_could_acknowledge(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1, lease="L1")
    run.deliver("a", at_s=70, lease="L2", count=1)
    run.ack("a", at_s=71, lease="L2")
    run.ack("a", at_s=71.05)


@bad("Q10")
def one_id_was_stored_twice(run: Run) -> None:
    run.publish("a", publish_id="i", uid="u1")
    run.publish("a", at_s=1, publish_id="i", uid="u2")
    run.deliver("a", at_s=2, uid="u1")
    run.ack("a", at_s=3)


@bad("Q10")
def one_id_was_delivered_as_two_messages(run: Run) -> None:
    run.publish("a", publish_id="i", uid="u1")
    run.publish("a", at_s=1, publish_id="i", end="unknown")
    run.deliver("a", at_s=2, uid="u1")
    run.deliver("a", at_s=3, uid="u2")
    run.ack("a", at_s=4)


@bad("Q10")
def one_id_made_two_tasks(run: Run) -> None:
    for task in "ab":
        run.publish(task, publish_id="i")
        run.deliver(task)
        run.ack(task)


@bad("Q10")
def a_crash_forgot_the_id(run: Run) -> None:
    run.publish("a", publish_id="i", uid="u1")
    run.crash(0.5)
    run.publish("a", at_s=1, publish_id="i", uid="u2")
    run.deliver("a", at_s=2, uid="u2")
    run.ack("a", at_s=3)


@bad("Q11")
def a_younger_message_overtook(run: Run) -> None:
    run.publish("a", at_s=0)
    run.publish("b", at_s=1)
    run.deliver("b", at_s=2)
    run.deliver("a", at_s=3)
    run.ack("a", at_s=4)
    run.ack("b", at_s=4)


@bad("Q11")
def a_younger_message_stood_first_in_one_answer(run: Run) -> None:
    run.publish("a", at_s=0)
    run.publish("b", at_s=1)
    run.deliver("b", "a", at_s=2)
    run.ack("a", at_s=4)
    run.ack("b", at_s=4)


@bad("Q11")
def a_larger_priority_overtook(run: Run) -> None:
    run.publish("urgent", at_s=0, priority=-20)
    run.publish("later", at_s=0, priority=20)
    run.deliver("later", at_s=2)
    run.deliver("urgent", at_s=3)
    run.ack("urgent", at_s=4)
    run.ack("later", at_s=4)


# Odd, and correct -------------------------------------------------------------------------------------------


@good
def a_lost_publish_answer_that_was_never_stored(run: Run) -> None:
    run.publish("a", end="unknown")


@good
def a_delivery_that_overlaps_the_ack(run: Run) -> None:
    run.publish("a", timeout_s=5)
    run.deliver("a", at_s=1)
    run.deliver("a", at_s=5, end_s=7, count=1)
    run.ack("a", at_s=6.0, lease="L1")


@good
def a_fast_delivery_that_died_with_the_broker(run: Run) -> None:
    run.publish("a")
    run.deliver("a", at_s=1, lease="1.1")
    run.crash(1.11)
    run.deliver("a", at_s=2, lease="2.1")
    run.ack("a", at_s=3, lease="2.1")


@good
def a_lost_fetch_that_explains_a_missing_attempt(run: Run) -> None:
    run.publish("a")
    run.fetch_lost(0.5)
    run.deliver("a", at_s=70, count=1)
    run.ack("a", at_s=71)


@good
def a_message_that_expired_unseen(run: Run) -> None:
    run.publish("a", expires_s=10)
    run.end_at(30)


@good
def an_ack_in_the_name_of_another_queue(run: Run) -> None:
    run.publish("a")
    run.deliver("a")
    run.ack("a", at_s=2, queue="wrong", known=False)
    run.ack("a", at_s=3)
