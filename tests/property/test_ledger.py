"""The ledger against a naive model of dicts, whatever is published, delivered, ended, purged and changed in between."""

from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from msgspec.structs import astuple

from tests.helpers.examples import examples
from tests.helpers.models.ledger import (
    IDS,
    LIMITS,
    SESSIONS,
    LedgerModel,
    Stored,
    batches,
    drafts,
    mostly_unlimited,
    picks,
    spans,
)
from tests.helpers.models.staging import StagingModel
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import (
    ANY_TOKEN,
    Ack,
    Delivered,
    Draft,
    Expired,
    Extended,
    Publish,
    Reason,
    Released,
    Requeued,
    Result,
)
from wakeq.protocol.queue.ledger.publishers import SESSION_WINDOW, Repeated, new_drafts, new_numbers
from wakeq.protocol.uid import UidMaker


class LedgerRules(StagingModel):
    """Whatever can happen to a queue, in any order."""

    @initialize(policies=mostly_unlimited, new=st.lists(drafts, min_size=3, max_size=6))
    def start(self, policies: Policies, new: list[Draft]) -> None:
        self.begin_anew(policies)
        self.publish(new, atomic=False, forced=True)
        self.deliver([0, 1], span_ms=500, term=1)

    # Publishing

    @rule(new=batches, atomic=st.booleans(), forced=st.sampled_from([False, False, True]))
    def publish(self, new: list[Draft], atomic: bool, forced: bool) -> None:
        entry = Publish("q", new, atomic=atomic, forced=forced)
        verdict = self.ledger.judge(entry)
        codes = self.codes(entry)

        results = self.ledger.publish(entry, self.now_ms)

        assert verdict == next((code for code in codes if code), 0)
        assert list(results) == self.stored(entry)
        self.check_new(results, entry)

    @rule(new=st.lists(drafts, min_size=1, max_size=3), name=st.sampled_from(IDS))
    def publish_once(self, new: list[Draft], name: str) -> None:
        entry = Publish("q", new, atomic=True, id=name)
        self.forget()
        known = self.ids.get(name)

        results = self.ledger.publish(entry, self.now_ms)

        if known is not None:
            assert isinstance(results, Repeated)
            assert (list(results), results.queue_id) == (known.numbers, known.queue_id)
        elif len(self.ids) >= LIMITS.dedup_ids_max:
            assert list(results) == [Result.BUSY] * len(new)
        else:
            expected = self.stored(entry)
            assert list(results) == expected
            self.check_new(results, entry)
            if expected[0] > 0:
                self.ids[name] = Stored(self.queue_id, expected, self.now_ms)

    @rule(
        new=st.lists(st.tuples(drafts, st.one_of(st.integers(1, 6), st.integers(1, 3_000))), min_size=1, max_size=5),
        session=st.sampled_from(SESSIONS),
        atomic=st.booleans(),
    )
    def publish_numbered(self, new: list[tuple[Draft, int]], session: str, atomic: bool) -> None:
        ordinals = [ordinal for _, ordinal in new][: 1 if atomic else None]
        entry = Publish("q", [draft for draft, _ in new], atomic=atomic, session=session, ordinals=ordinals)
        self.forget()

        results = self.ledger.publish(entry, self.now_ms)

        if session not in self.used_ms and len(self.used_ms) >= LIMITS.dedup_ids_max:
            assert list(results) == [Result.BUSY] * len(new)
            return
        self.numbered.setdefault(session, {})
        highest = self.highest.get(session, 0)
        first = self.next_number
        parts = [(ordinals[0], entry.drafts)] if atomic else [(n, [draft]) for draft, n in new]
        expected = [n for ordinal, mine in parts for n in self.stored_by_number(entry, ordinal, mine, highest)]
        assert list(results) == expected
        assert list(new_numbers(results)) == list(range(first, self.next_number))
        assert len(new_drafts(results, entry.drafts)) == self.next_number - first
        self.used_ms[session] = self.now_ms
        highest = self.highest[session] = max(highest, *ordinals)
        if len(self.numbered[session]) > 2 * SESSION_WINDOW:
            kept = {n: once for n, once in self.numbered[session].items() if n > highest - SESSION_WINDOW}
            self.numbered[session] = kept

    def check_new(self, results: Any, entry: Publish) -> None:
        numbers = list(new_numbers(results))
        assert numbers == [number for number in results if number > 0]
        assert [self.messages[number].draft for number in numbers] == list(new_drafts(results, entry.drafts))

    # Deliveries

    @precondition(LedgerModel.any_lives)
    @rule(places=picks, span_ms=spans, term=st.integers(1, 3))
    def deliver(self, places: list[int], span_ms: int, term: int) -> None:
        numbers = self.pick(places)
        untils = [self.now_ms + span_ms + i + 1 for i in range(len(numbers))]
        first, self.sequence = self.sequence + 1, self.sequence + len(numbers)

        self.ledger.deliver(Delivered("q", self.queue_id, numbers, untils, first), term)

        for i, number in enumerate(numbers):
            message = self.messages.get(number)
            if message is not None:
                self.messages[number] = message._replace(
                    deliveries=message.deliveries + 1, token=(term, first + i), until_ms=untils[i], due_ms=0
                )

    @precondition(LedgerModel.any_is_out)
    @rule(places=picks, span_ms=spans)
    def extend(self, places: list[int], span_ms: int) -> None:
        numbers = self.pick(places)
        until_ms = self.now_ms + span_ms + 1

        self.ledger.extend(Extended("q", self.queue_id, numbers, [until_ms] * len(numbers)))

        for number in numbers:
            message = self.messages.get(number)
            if message is not None and message.until_ms:
                self.messages[number] = message._replace(until_ms=until_ms)

    @precondition(LedgerModel.any_is_out)
    @rule(
        places=picks,
        kinds=st.lists(st.integers(0, 4), min_size=1, max_size=6),
        reason=st.sampled_from([Reason.NACK, Reason.TIMEOUT, Reason.DISCONNECT, Reason.RETURNED]),
        error=st.sampled_from(["", "boom"]),
        wait_ms=spans,
    )
    def release(self, places: list[int], kinds: list[int], reason: Reason, error: str, wait_ms: int) -> None:
        numbers = self.pick(places)
        tokens = self.tokens(numbers, kinds)
        due_ms = self.now_ms + wait_ms

        results = self.ledger.release(
            Released("q", self.queue_id, numbers, [due_ms] * len(numbers), tokens, reason, error)
        )

        for number, token, result in zip(numbers, tokens, results, strict=True):
            assert result == (Result.UNKNOWN if self.is_published(number) else self.code_if_out(number, token))
            if result == Result.DONE:
                message = self.messages[number]
                counts = [*message.counts]
                if reason != Reason.RETURNED:
                    counts[reason - 1] += 1
                self.messages[number] = message._replace(
                    until_ms=0, due_ms=due_ms, counts=tuple(counts), error=error or message.error
                )

    # Ends

    @precondition(LedgerModel.any_lives)
    @rule(
        places=picks,
        kinds=st.lists(st.integers(0, 4), min_size=1, max_size=6),
        by_uid=st.booleans(),
        wrong=st.sampled_from([0, 0, 1]),
        delivered=st.booleans(),
    )
    def acknowledge(self, places: list[int], kinds: list[int], by_uid: bool, wrong: int, delivered: bool) -> None:
        numbers = self.pick(places)
        tokens = self.tokens(numbers, kinds)
        uid = UidMaker(self.queue_id + wrong).uid
        entry = (
            Ack("q", 0, [-1] * len(numbers), tokens, foreign={i: uid(n) for i, n in enumerate(numbers)})
            if by_uid
            else Ack("q", self.queue_id + wrong, numbers, tokens, delivered=delivered)
        )
        totals = msgspec.structs.replace(self.ledger.totals)
        expected = [
            int(Result.UNKNOWN if wrong else self.code_of(n, token)) for n, token in zip(numbers, tokens, strict=True)
        ]

        assert self.ledger.judge_ack(entry) == next((code for code in expected if code), 0)
        self.check_verdict_on_a_letter(entry, numbers, expected)
        assert list(self.ledger.acknowledge(entry)) == expected

        done = expected.count(0)
        totals.acked += done
        totals.delivered += done * entry.delivered
        assert self.ledger.totals == totals
        for number, code in zip(numbers, expected, strict=True):
            if code == Result.DONE:
                self.end(number)

    def check_verdict_on_a_letter(self, entry: Ack, numbers: list[int], codes: list[int]) -> None:
        """Only a delivery that is out can end in the dead letters, and none of what is published."""
        out = [
            not code and self.messages[number].until_ms > 0 and not self.is_published(number)
            for number, code in zip(numbers, codes, strict=True)
        ]
        refusals = [code or Result.UNKNOWN for code, is_out in zip(codes, out, strict=True) if not is_out]

        verdict = self.ledger.judge_ack(msgspec.structs.replace(entry, dead=True))

        assert verdict == next(iter(refusals), 0)

    @precondition(LedgerModel.any_lives)
    @rule(places=picks, wrong=st.sampled_from([0, 0, 1]))
    def expire(self, places: list[int], wrong: int) -> None:
        numbers = self.pick(places)

        results = self.ledger.expire(Expired("q", self.queue_id + wrong, numbers), self.now_ms)

        for number, result in zip(numbers, results, strict=True):
            message = self.messages.get(number)
            is_over = (
                message is not None
                and message.draft.expires_ms > 0
                and message.at_ms + message.draft.expires_ms <= self.now_ms
                and not message.until_ms
            )
            assert result == (Result.DONE if is_over and not wrong else Result.UNKNOWN)
            if result == Result.DONE:
                self.end(number)

    # What an operator does

    @precondition(LedgerModel.any_lives)
    @rule(places=picks, wrong=st.sampled_from([0, 0, 1]))
    def move(self, places: list[int], wrong: int) -> None:
        numbers = self.pick(places)
        entry = Ack("q", self.queue_id + wrong, numbers, [ANY_TOKEN] * len(numbers), moved=True)
        may_go = [number in self.messages and not self.messages[number].until_ms and not wrong for number in numbers]
        moved = self.ledger.totals.moved

        verdict, results = self.ledger.judge_ack(entry), self.ledger.acknowledge(entry)

        assert list(results) == [Result.DONE if may else Result.UNKNOWN for may in may_go]
        assert verdict == (Result.DONE if all(may_go) else Result.UNKNOWN)
        assert self.ledger.totals.moved == moved + sum(may_go)
        for number, may in zip(numbers, may_go, strict=True):
            if may:
                self.end(number)

    @precondition(LedgerModel.any_lives)
    @rule(places=picks, wrong=st.sampled_from([0, 0, 1]))
    def requeue(self, places: list[int], wrong: int) -> None:
        numbers = self.pick(places)

        results = self.ledger.requeue(Requeued("q", self.queue_id + wrong, numbers))

        for number, result in zip(numbers, results, strict=True):
            message = self.messages.get(number)
            is_ours = message is not None and not message.until_ms and not wrong
            assert result == (Result.DONE if is_ours else Result.UNKNOWN)
            if is_ours:
                assert message is not None
                self.messages[number] = message._replace(due_ms=0, requeued=True)

    # The queue as a whole, and time

    @rule(how=st.sampled_from(["not"] * 6 + ["purge", "delete"]))
    def begin(self, how: str) -> None:
        if how == "not":
            return
        self.queue_id += 10
        if how == "delete":
            self.ledger.forget_publishers()
            self.ids, self.numbered, self.highest, self.used_ms = {}, {}, {}, {}
        self.ledger.begin(self.queue_id, self.policies)
        self.forget_staged()
        self.messages, self.gone, self.next_number = {}, [], 1

    @rule(policies=mostly_unlimited)
    def update(self, policies: Policies) -> None:
        self.policies = policies
        self.ledger.set_policies(policies)

    @rule(span_ms=st.sampled_from([1, 100, 200, 200, 700, 1_000]))
    def time_goes_on(self, span_ms: int) -> None:
        self.now_ms += span_ms

    @rule()
    def collect(self) -> None:
        delta = self.ledger.collect()
        assert not any(astuple(self.ledger.collect()))
        assert set(delta.touched) <= self.messages.keys()


LedgerRules.TestCase.settings = settings(
    max_examples=examples(120), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestLedgerRules = LedgerRules.TestCase
