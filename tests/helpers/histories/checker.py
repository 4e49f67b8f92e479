"""The checker: reads a history and says which promises it breaks, rule by rule, in linear time.

    events --> one story for each task --> rules Q1..Q11 --> Report(violations, what was seen)

Q1 lost · Q2 invented or altered · Q3 delivered after a confirmed ack · Q4 two holders at once · Q5 before
its delay · Q6 after its expiry · Q7 attempt numbers · Q8 too many deliveries, dead letters · Q9 acks and
receipts · Q10 one id, two tasks · Q11 order. Only what is certain is flagged: an operation happened
somewhere between its invoke and its answer, an unknown one perhaps never. An answer does not travel for
long: a delivery that was asked for before an ack and arrives well after it left the broker after it. The
checker never looks at the broker, and never forgives by default: the only exception is a delivery on a
queue that is not strict whose entry may have died with the broker.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from tests.helpers.histories.history import Event
from tests.helpers.histories.stories import Delivery, Operation, Stories, Story

CRASH_WINDOW_S = 0.5  # a delivery is on disk this long after its answer (20 ms, a sync, and a busy machine)
CLOCK_TOLERANCE = 0.01  # the cluster clock never runs faster than real time by more than this
EXPIRY_TICK_S = 0.25  # how late the broker may notice that a message has expired
ARRIVAL_S = 0.5  # an answer is here this long after it left the broker, on a busy machine
LOST_FETCH_S = 5.0  # a fetch whose answer was lost may have claimed what was published this long after it


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise."""

    rule: str
    task: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule} {self.task}: {self.text}"


@dataclass(slots=True)
class Report:
    """What a history shows: the broken promises, and how much there was to see."""

    violations: list[Violation] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def rules(self) -> set[str]:
        return {violation.rule for violation in self.violations}

    def explain(self, at_most: int = 10) -> str:
        """Return the first violations and the counts as text."""
        lines = [f"{len(self.violations)} violations; seen: {dict(self.seen)}"]
        return "\n  ".join(lines + [str(violation) for violation in self.violations[:at_most]])


def check(
    events: Iterable[Event], *, crash_window_s: float = CRASH_WINDOW_S, pauses: Sequence[tuple[float, float]] = ()
) -> Report:
    """Return what the history breaks.

    crash_window_s: how old a delivery is at most that a crash may make forgotten
    pauses: when the cluster clock stood still, and for how long: what expires meanwhile, or later, does so late
    """
    return _Checker(list(events), crash_window_s, pauses).run()


class _Checker:
    """One pass over one history."""

    def __init__(self, events: list[Event], crash_window_s: float, pauses: Sequence[tuple[float, float]]) -> None:
        self.report = Report()
        self.past = Stories(events)
        self._crash_window_s, self._pauses = crash_window_s, pauses

    def run(self) -> Report:
        batches_seen = self.past.batches_seen()
        for story in self.past.by_task.values():
            self._count(story)
            if not self._invented(story):
                self._check_story(story, certain=story.plan.batch in batches_seen)
        self._q2_one_uid_one_task()
        self._q10_one_id_one_uid()
        self._q11_order()
        return self.report

    # Small answers ------------------------------------------------------------------------------------------

    def _flag(self, rule: str, story: Story, text: str) -> None:
        self.report.violations.append(Violation(rule, story.task, text))

    def _count(self, story: Story) -> None:
        seen = self.report.seen
        seen["tasks"] += 1
        seen["publishes_ok"] += sum(publish.outcome == "ok" for publish in story.publishes)
        seen["publishes_unknown"] += sum(publish.outcome == "unknown" for publish in story.publishes)
        seen["deliveries"] += len(story.deliveries)
        seen["dead_letters"] += len(story.dead)
        seen["redeliveries"] += sum(delivery.error_count > 0 for delivery in story.deliveries)
        seen["acks_ok"] += sum(ack.outcome == "ok" for ack in story.acks)
        seen["nacks_ok"] += sum(nack.outcome == "ok" for nack in story.nacks)
        seen["touches_ok"] += sum(touch.outcome == "ok" for touch in story.touches)

    def _may_be_forgotten(self, story: Story, delivery: Delivery) -> bool:
        """Whether the entry of this delivery may have died with the broker."""
        return not story.plan.strict and self.past.crashed_in(delivery.start_s, delivery.end_s + self._crash_window_s)

    def _either_may_be_forgotten(self, story: Story, first: Delivery, second: Delivery) -> bool:
        """Whether the delivery that was handed out first may be: where answers overlap, that may be the second.

        What made it be forgotten must have come before the first one's answer, or that would have been the later one.
        """
        if self._may_be_forgotten(story, first):
            return True
        overlap = first.end_s > second.start_s
        return (
            overlap
            and not story.plan.strict
            and self.past.crashed_in(second.start_s, first.end_s + self._crash_window_s)
        )

    def _may_have_expired(self, story: Story, at_s: float) -> bool:
        plan = story.plan
        return plan.expires_s > 0 and at_s >= plan.at_s + plan.expires_s * (1 - CLOCK_TOLERANCE)

    # Rules of one task --------------------------------------------------------------------------------------

    def _check_story(self, story: Story, *, certain: bool) -> None:
        self._q1_lost(story, certain=certain)
        self._q1_forgotten(story)
        self._q2_altered(story)
        self._q3_after_ack(story)
        self._q4_two_holders(story)
        self._q5_early(story)
        self._q6_expired(story)
        self._q7_attempts(story, story.deliveries)
        self._q7_attempts(story, story.dead)
        self._q8_dead_letters(story)
        self._q9_acks(story)

    def _invented(self, story: Story) -> bool:
        """Q2: nobody published what was delivered."""
        if story.publishes:
            return False
        if story.deliveries:
            self._flag("Q2", story, "delivered, and never published")
        return True

    def _q1_lost(self, story: Story, *, certain: bool) -> None:
        if not (certain or story.stored_s < inf or story.deliveries or story.dead):
            return  # its publish failed or is unknown: it may have been stored or not
        if any(ack.possible and (ack.known or ack.outcome == "unknown") for ack in story.acks):
            return  # acknowledged, or an acknowledgement is on its way for ever
        if story.remains or self._may_have_expired(story, self.past.last_s):
            return
        self._flag(
            "Q1",
            story,
            f"lost: stored, delivered {len(story.deliveries)} times, never acknowledged, not there",
        )

    def _q1_forgotten(self, story: Story) -> None:
        """An ack is told that the message is gone, and nothing can have taken it away."""
        for ack in story.acks_of(story.plan.queue):
            if ack.outcome != "ok" or ack.known or story.plan.max_deliveries:
                continue
            others = (other for other in story.acks if other is not ack and other.possible)
            if any(other.start_s <= ack.end_s for other in others) or self._may_have_expired(story, ack.end_s):
                continue
            self._flag("Q1", story, f"gone before its first acknowledgement at {ack.end_s:.3f}")

    def _q2_altered(self, story: Story) -> None:
        first_s = min(publish.start_s for publish in story.publishes)
        uids = {publish.uid for publish in story.publishes if publish.outcome == "ok" and publish.uid}
        if story.deliveries and not any(publish.possible for publish in story.publishes):
            self._flag("Q2", story, "delivered although its publish was refused")
        for delivery in story.deliveries + story.dead:
            if delivery.end_s < first_s:
                self._flag("Q2", story, "delivered before it was published")
            if delivery.digest != story.plan.digest:
                self._flag("Q2", story, f"the body of delivery {delivery.error_count} is not what was published")
        for delivery in story.deliveries:
            if delivery.queue != story.plan.queue:
                self._flag("Q2", story, f"delivered from {delivery.queue!r}, published to {story.plan.queue!r}")
            uids.add(delivery.uid)
        if len(uids) > 1:
            self._flag("Q10" if story.plan.publish_id else "Q2", story, f"one message has the uids {sorted(uids)}")

    def _q3_after_ack(self, story: Story) -> None:
        for deliveries, queue in ((story.deliveries, story.plan.queue), (story.dead, story.plan.dead_letter)):
            gone_s = min((ack.end_s for ack in story.acks_of(queue) if ack.outcome == "ok"), default=inf)
            for delivery in deliveries:
                if delivery.start_s > gone_s:
                    self._flag("Q3", story, f"fetched at {delivery.start_s:.3f}, acknowledged at {gone_s:.3f}")
                elif delivery.end_s > gone_s + ARRIVAL_S and not self._is_acknowledged(story, delivery):
                    self._flag("Q3", story, f"arrived at {delivery.end_s:.3f}, acknowledged at {gone_s:.3f}")
                elif delivery.end_s > gone_s:
                    self.report.seen["overlap_ack"] += 1

    @staticmethod
    def _is_acknowledged(story: Story, delivery: Delivery) -> bool:
        """Whether it is this very delivery that was acknowledged: then it had arrived by then, somewhere."""
        return any(ack.start.lease == delivery.lease for ack in story.acks_of(delivery.queue))

    def _q4_two_holders(self, story: Story) -> None:
        for first, second in _pairs(story.deliveries):
            if self._either_may_be_forgotten(story, first, second) or self._may_have_released(story, first, second):
                continue
            if second.end_s < self._lease_end_s(story, first, second):
                self._flag("Q4", story, f"held since {first.end_s:.3f}, given to another at {second.end_s:.3f}")

    def _may_have_released(self, story: Story, first: Delivery, second: Delivery) -> bool:
        return any(
            nack.possible and first.start_s <= nack.start_s <= second.end_s and nack.start.lease in ("", first.lease)
            for nack in story.nacks
        )

    def _lease_end_s(self, story: Story, first: Delivery, second: Delivery) -> float:
        """Return the moment until which the first holder certainly had it."""
        share = 1 - CLOCK_TOLERANCE
        last_touch_s = -inf
        end_s = min(first.start_s, second.start_s) + story.plan.timeout_s * share
        for touch in sorted(story.touches, key=lambda touch: touch.start_s):
            if not touch.possible or touch.start.lease not in ("", first.lease) or touch.start_s > second.end_s:
                continue
            touched_s = touch.start_s + touch.start.timeout_s * share
            forgotten = not story.plan.strict and self.past.crashed_in(
                touch.start_s, touch.end_s + self._crash_window_s
            )
            alone = touch.start_s >= last_touch_s  # of two at the same time, either may have been the last
            certain = touch.outcome == "ok" and touch.end_s <= second.start_s and not forgotten and alone
            last_touch_s = max(last_touch_s, touch.end_s)
            end_s = touched_s if certain else min(end_s, touched_s)
        return end_s

    def _q5_early(self, story: Story) -> None:
        plan = story.plan
        for delivery in story.deliveries:
            if delivery.end_s < plan.at_s + plan.delay_s:
                self._flag(
                    "Q5",
                    story,
                    f"delivered {plan.at_s + plan.delay_s - delivery.end_s:.3f} s before its delay",
                )
        for nack in story.nacks:
            if nack.outcome != "ok" or not nack.start.delay_s:
                continue
            due_s = nack.start_s + nack.start.delay_s
            if any(
                other.possible and nack.start_s < other.end_s and other.start_s < due_s
                for other in story.nacks
                if other is not nack
            ):
                continue  # another nack may have set another delay
            for delivery in story.deliveries:
                if nack.end_s <= delivery.start_s and delivery.end_s < due_s:
                    self._flag("Q5", story, "delivered before the delay of its nack")

    def _q6_expired(self, story: Story) -> None:
        if not story.plan.expires_s or story.stored_s == inf:
            return
        last_s = story.stored_s + story.plan.expires_s * (1 + CLOCK_TOLERANCE) + EXPIRY_TICK_S
        for delivery in story.deliveries:
            lag_s = sum(span_s for at_s, span_s in self._pauses if story.plan.at_s <= at_s <= delivery.start_s)
            if delivery.start_s > last_s + lag_s:
                self._flag("Q6", story, f"fetched {delivery.start_s - last_s - lag_s:.3f} s after it had expired")

    def _q7_attempts(self, story: Story, deliveries: list[Delivery]) -> None:
        for first, second in _pairs(deliveries):
            forgotten = self._either_may_be_forgotten(story, first, second)
            if second.error_count == first.error_count:
                if not forgotten:
                    self._flag("Q7", story, f"attempt {first.error_count} was delivered twice")
            elif second.error_count < first.error_count and first.end_s <= second.start_s:
                self._flag("Q7", story, f"attempt {second.error_count} after attempt {first.error_count}")
        expected = missing = 0
        for delivery in sorted(deliveries, key=lambda delivery: delivery.error_count):
            missing += max(0, delivery.error_count - expected)
            expected = delivery.error_count + 1
            if missing > self.past.lost_fetches_until(delivery.queue, delivery.end_s):
                self._flag("Q7", story, f"attempt {delivery.error_count}: an attempt before it was seen by nobody")
                return

    def _q8_dead_letters(self, story: Story) -> None:
        most = story.plan.max_deliveries
        claims = [delivery for delivery in story.deliveries if most and delivery.error_count >= most]
        forgotten = sum(self._may_be_forgotten(story, delivery) for delivery in story.deliveries)
        if claims and (claims[-1].error_count >= most + 1 or not forgotten):
            self._flag("Q8", story, f"attempt {claims[-1].error_count} of at most {most} deliveries")
        if not story.dead:
            return
        first = story.dead[0]
        if len({delivery.uid for delivery in story.dead}) > 1:
            self._flag("Q8", story, "dead-lettered twice")
        if any(delivery.start_s > first.end_s for delivery in story.deliveries):
            self._flag("Q8", story, "delivered from its queue after it was dead-lettered")
        if any(ack.outcome == "ok" and ack.known for ack in story.acks_of(story.plan.queue)):
            self._flag("Q8", story, "acknowledged and dead-lettered")
        if len(story.deliveries) + self.past.lost_fetches_until(story.plan.queue, first.end_s) < most:
            self._flag("Q8", story, f"dead-lettered after {len(story.deliveries)} of {most} deliveries")

    def _q9_acks(self, story: Story) -> None:
        for queue in {story.plan.queue, story.plan.dead_letter}:
            succeeded = [ack for ack in story.acks_of(queue) if ack.outcome == "ok" and ack.known]
            if len(succeeded) > 1:
                self._flag("Q9", story, f"{len(succeeded)} acknowledgements succeeded")
            for ack in succeeded:
                self._q9_older_receipt(story, ack)

    def _q9_older_receipt(self, story: Story, ack: Operation) -> None:
        if not ack.start.lease:
            return
        held = [delivery for delivery in story.deliveries if delivery.lease == ack.start.lease]
        for delivery in story.deliveries:
            newer = all(delivery.start_s > older.end_s for older in held) and held
            if newer and delivery.end_s < ack.start_s and not self._may_be_forgotten(story, delivery):
                self._flag("Q9", story, "acknowledged with an older receipt than the last delivery's")
                return

    # Rules over all tasks -----------------------------------------------------------------------------------

    def _q2_one_uid_one_task(self) -> None:
        owners: dict[tuple[str, str], str] = {}
        for story in self.past.by_task.values():
            for delivery in story.deliveries:
                owner = owners.setdefault((delivery.queue, delivery.uid), story.task)
                if owner != story.task:
                    self._flag("Q2", story, f"uid {delivery.uid} is also the message {owner}")
                    break

    def _q10_one_id_one_uid(self) -> None:
        first: dict[tuple[str, str], str] = {}
        for story in self.past.by_task.values():
            for publish in story.publishes:
                start = publish.start
                if publish.outcome == "ok" and publish.uid and start.publish_id:
                    uid = first.setdefault((start.queue, start.publish_id), publish.uid)
                    if uid != publish.uid:
                        self._flag("Q10", story, f"id {start.publish_id} was stored as {uid} and as {publish.uid}")

    def _q11_order(self) -> None:
        claims: dict[str, list[tuple[Story, Delivery]]] = defaultdict(list)
        for story in self.past.by_task.values():
            if story.publishes and story.deliveries and self._first_claim_is_certain(story):
                claims[story.plan.queue].append((story, story.deliveries[0]))
        for in_queue in claims.values():
            by_priority: dict[int, list[tuple[Story, Delivery]]] = defaultdict(list)
            for story, delivery in in_queue:
                by_priority[story.plan.priority].append((story, delivery))
            for same in by_priority.values():
                self._q11_first_in_first_out(same)
            if len(by_priority) > 1:
                self._q11_smallest_first(in_queue)
        self._q11_inside_an_answer()

    def _first_claim_is_certain(self, story: Story) -> bool:
        """Whether what was seen as its first delivery was its first, from the moment that it was stored."""
        first, plan = story.deliveries[0], story.plan
        if plan.delay_s or first.error_count or len(story.publishes) > 1 or story.stored_s == inf:
            return False
        unseen_s = self.past.lost_fetches_s.get(plan.queue, [])
        unseen = bisect_right(unseen_s, first.start_s) - bisect_left(unseen_s, plan.at_s - LOST_FETCH_S)
        return unseen == 0 and not self._may_be_forgotten(story, first)

    def _q11_first_in_first_out(self, claims: list[tuple[Story, Delivery]]) -> None:
        """Flag B if an A that was stored before B was published was fetched only after B had been handed out."""
        stored = sorted(claims, key=lambda claim: claim[0].stored_s)
        place, latest_s, latest = 0, -inf, ""
        for story, delivery in sorted(claims, key=lambda claim: claim[0].plan.at_s):
            while place < len(stored) and stored[place][0].stored_s < story.plan.at_s:
                if stored[place][1].start_s > latest_s:
                    latest_s, latest = stored[place][1].start_s, stored[place][0].task
                place += 1
            if latest_s > delivery.end_s:
                self._flag("Q11", story, f"overtook {latest}, which was published before it")

    def _q11_smallest_first(self, claims: list[tuple[Story, Delivery]]) -> None:
        """Flag B if an A of a smaller priority lay ready before B was fetched, and was fetched only after B."""
        stored = sorted(claims, key=lambda claim: claim[0].stored_s)
        priorities = sorted({story.plan.priority for story, _ in claims})
        latest_s = dict.fromkeys(priorities, -inf)
        place = 0
        for story, delivery in sorted(claims, key=lambda claim: claim[1].start_s):
            while place < len(stored) and stored[place][0].stored_s < delivery.start_s:
                ready, claimed = stored[place]
                latest_s[ready.plan.priority] = max(latest_s[ready.plan.priority], claimed.start_s)
                place += 1
            smaller = priorities[: bisect_left(priorities, story.plan.priority)]
            if any(latest_s[priority] > delivery.end_s for priority in smaller):
                self._flag("Q11", story, "overtook a message of a smaller priority that lay ready")

    def _q11_inside_an_answer(self) -> None:
        for op, tasks in self.past.answers.items():
            if len(tasks) > 1:
                self._q11_one_answer(op, [self.past.by_task[task] for task in tasks])

    def _q11_one_answer(self, op: int, stories: list[Story]) -> None:
        latest_s: dict[tuple[str, int], float] = {}
        for story in stories:
            if not story.publishes or not story.deliveries or story.deliveries[0].op != op:
                continue
            if not self._first_claim_is_certain(story):
                continue
            place = (story.plan.queue, story.plan.priority)
            if story.stored_s < latest_s.get(place, -inf):
                self._flag("Q11", story, "stands behind a younger message in one answer")
            latest_s[place] = max(latest_s.get(place, -inf), story.plan.at_s)


def _pairs(deliveries: list[Delivery]) -> Iterator[tuple[Delivery, Delivery]]:
    return pairwise(deliveries)
