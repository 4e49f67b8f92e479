"""The ledger against a naive model of dicts, whatever is published, delivered, ended, purged and changed in between."""

from typing import Any, NamedTuple

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from wakeq.protocol.catalog import Policies
from wakeq.protocol.commands import (
    ANY_TOKEN,
    Ack,
    Claim,
    ClaimAction,
    Delivered,
    Draft,
    Expired,
    Extended,
    Publish,
    Reason,
    Released,
    Requeued,
    Result,
    Stash,
    Token,
    Unstash,
    UnstashAction,
)
from wakeq.protocol.delta import Delta
from wakeq.protocol.ledger import Ledger
from wakeq.protocol.publishers import SESSION_WINDOW, Limits
from wakeq.protocol.results import Repeated, new_drafts, new_numbers
from wakeq.protocol.staging import OPEN_EPOCHS_MAX, UNENDING_MS
from wakeq.protocol.uid import UidMaker

LIMITS = Limits(dedup_ids_max=3, dedup_window_ms=1_000)
IDS = ("a", "b", "c", "d", "e")
SESSIONS = ("s", "t", "u", "v")

drafts = st.builds(
    Draft,
    body=st.binary(max_size=6),
    priority=st.sampled_from([0, 0, -1, 5, 2**63 - 1]),
    delay_ms=st.sampled_from([0, 0, 300]),
    expires_ms=st.sampled_from([0, 0, 200, 900]),
    timeout_ms=st.sampled_from([0, 0, 5_000]),
)
batches = st.one_of(st.lists(drafts, min_size=1, max_size=5), st.integers(1, 700).map(lambda n: [Draft(b"x")] * n))
all_policies = st.builds(
    Policies,
    max_size=st.sampled_from([None, None, 0, 3, 600]),
    max_bytes=st.sampled_from([None, None, 8, 500]),
    max_message_size=st.sampled_from([None, None, 4]),
    priority_min=st.sampled_from([None, None, 0]),
    priority_max=st.sampled_from([None, None, 4]),
    timeout=st.sampled_from([60, 5]),
)
mostly_unlimited = st.one_of(st.just(Policies()), st.just(Policies(timeout=9)), all_policies)
picks = st.lists(st.integers(0, 10**6), min_size=1, max_size=6)
spans = st.sampled_from([0, 1, 99, 200, 999])


class Message(NamedTuple):
    """What the model knows of a living message; `counts` are its failures: nacks, timeouts, disconnects."""

    draft: Draft
    at_ms: int
    deliveries: int = 0
    counts: tuple[int, ...] = (0, 0, 0)
    token: Token = (0, 0)
    until_ms: int = 0
    due_ms: int = 0  # when it came back
    error: str = ""
    requeued: bool = False  # its delay counts no longer


class Stored(NamedTuple):
    """What an id or a number of a session became."""

    queue_id: int
    numbers: list[int]
    at_ms: int


class Claimed(NamedTuple):
    """An open epoch, as the model knows it: each message with its token."""

    rows: list[tuple[int, Token]]
    slices: int
    until_ms: int

    @property
    def sizes(self) -> list[int]:
        return [len(self.rows[place :: self.slices]) for place in range(self.slices)]


class LedgerModel(RuleBasedStateMachine):
    """`messages` is what should live; the rules of the design are written down here a second time, slowly."""

    @initialize(policies=mostly_unlimited, new=st.lists(drafts, min_size=3, max_size=6))
    def start(self, policies: Policies, new: list[Draft]) -> None:
        self.now_ms, self.queue_id, self.sequence = 10_000, 1, 0
        self.policies = policies
        self.messages: dict[int, Message] = {}
        self.gone: list[int] = []
        self.next_number = 1
        self.ids: dict[str, Stored] = {}
        self.numbered: dict[str, dict[int, Stored]] = {}
        self.highest: dict[str, int] = {}
        self.used_ms: dict[str, int] = {}
        self.forget_staged()
        self.ledger = Ledger("q", 1, policies, LIMITS)
        self.publish(new, atomic=False, forced=True)
        self.deliver([0, 1], span_ms=500, term=1)

    # The model's own rules

    def forget_staged(self) -> None:
        self.claims: dict[tuple[str, int], Claimed] = {}
        self.staged: dict[str, int] = {}  # source -> its highest epoch
        self.stashes: dict[str, dict[int, list[int]]] = {}
        self.stashed_until_ms: dict[str, int] = {}
        self.written: dict[str, int] = {}  # writer -> its highest epoch
        self.hidden: set[int] = set()

    def refusal(self, draft: Draft, waiting: int, size: int) -> int:
        p = self.policies
        if (p.max_size is not None and waiting >= p.max_size) or (
            p.max_bytes is not None and size + len(draft.body) > p.max_bytes
        ):
            return Result.QUEUE_FULL
        if p.priority_min is not None and draft.priority < p.priority_min:
            return Result.KEY_RANGE
        if p.priority_max is not None and draft.priority > p.priority_max:
            return Result.KEY_RANGE
        if p.max_message_size is not None and len(draft.body) > p.max_message_size:
            return Result.TOO_LARGE
        return Result.DONE

    def codes(self, entry: Publish) -> list[int]:
        waiting = sum(not message.until_ms for message in self.messages.values())
        size = sum(len(message.draft.body) for message in self.messages.values())
        codes = []
        for draft in entry.drafts:
            code = Result.DONE if entry.forced else self.refusal(draft, waiting, size)
            if code == Result.DONE:
                waiting, size = waiting + 1, size + len(draft.body)
            codes.append(int(code))
        return codes

    def stored(self, entry: Publish) -> list[int]:
        codes = self.codes(entry)
        if entry.atomic and any(codes):
            return [next(code for code in codes if code)] * len(codes)
        results = []
        for draft, code in zip(entry.drafts, codes, strict=True):
            if not code:
                self.messages[self.next_number] = Message(draft, self.now_ms)
                self.next_number += 1
            results.append(code or self.next_number - 1)
        return results

    def forget(self) -> None:
        oldest = self.now_ms - LIMITS.dedup_window_ms
        self.ids = {name: once for name, once in self.ids.items() if once.at_ms > oldest}
        for name in [name for name, used_ms in self.used_ms.items() if used_ms <= oldest]:
            del self.used_ms[name], self.numbered[name], self.highest[name]

    def stored_by_number(self, entry: Publish, ordinal: int, drafts: list[Draft], highest: int) -> list[int]:
        known = self.numbered[entry.session].get(ordinal)
        if known is not None:
            return known.numbers if entry.atomic else known.numbers[:1]
        if ordinal <= highest - SESSION_WINDOW:
            return [Result.FORGOTTEN] * len(drafts)
        one = Publish("q", drafts, atomic=entry.atomic)
        results = self.stored(one)
        if results[0] > 0:
            self.numbered[entry.session][ordinal] = Stored(self.queue_id, results, self.now_ms)
        return results

    def any_lives(self) -> bool:
        return bool(self.messages)

    def any_is_out(self) -> bool:
        return any(message.until_ms for message in self.messages.values())

    def pick(self, places: list[int]) -> list[int]:
        """Return different numbers: those that are out and the oldest others, some gone, and one that never was."""
        out = [number for number, message in self.messages.items() if message.until_ms]
        shown = [number for number in self.messages if number not in self.hidden]  # no leader hands out others
        numbers = [*out, *shown[:5], *self.gone[-2:], self.next_number + 7]
        return list(dict.fromkeys(numbers[place % len(numbers)] for place in places))

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

    @precondition(any_lives)
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

    @precondition(any_is_out)
    @rule(places=picks, span_ms=spans)
    def extend(self, places: list[int], span_ms: int) -> None:
        numbers = self.pick(places)
        until_ms = self.now_ms + span_ms + 1

        self.ledger.extend(Extended("q", self.queue_id, numbers, [until_ms] * len(numbers)))

        for number in numbers:
            message = self.messages.get(number)
            if message is not None and message.until_ms:
                self.messages[number] = message._replace(until_ms=until_ms)

    def tokens(self, numbers: list[int], kinds: list[int]) -> list[Token]:
        """Return for each number any token, its own, an older one, or one that the log does not know."""
        tokens = []
        for i, number in enumerate(numbers):
            term, sequence = self.messages[number].token if number in self.messages else (1, 1)
            choice = [ANY_TOKEN, (term, sequence), (term, sequence - 1), (term - 1, 10**6), (term, sequence + 1)]
            tokens.append(choice[kinds[i % len(kinds)]])
        return tokens

    def is_stale(self, number: int, token: Token) -> bool:
        message = self.messages[number]
        return message.deliveries > 0 and token != ANY_TOKEN and token < message.token

    @precondition(any_is_out)
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
            message = self.messages.get(number)
            if message is None or not message.until_ms:
                assert result == Result.UNKNOWN
            elif self.is_stale(number, token):
                assert result == Result.STALE
            else:
                assert result == Result.DONE
                counts = [*message.counts]
                if reason != Reason.RETURNED:
                    counts[reason - 1] += 1
                self.messages[number] = message._replace(
                    until_ms=0, due_ms=due_ms, counts=tuple(counts), error=error or message.error
                )

    # Ends

    def code_of(self, number: int, token: Token) -> int:
        if number not in self.messages:
            return Result.UNKNOWN
        return Result.STALE if self.is_stale(number, token) else Result.DONE

    @precondition(any_lives)
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
        """Only a delivery that is out can end in the dead letters."""
        out = [not code and self.messages[number].until_ms > 0 for number, code in zip(numbers, codes, strict=True)]
        refusals = [code or Result.UNKNOWN for code, is_out in zip(codes, out, strict=True) if not is_out]

        verdict = self.ledger.judge_ack(msgspec.structs.replace(entry, dead=True))

        assert verdict == next(iter(refusals), 0)

    @precondition(any_lives)
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

    @precondition(any_lives)
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

    @precondition(any_lives)
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

    def end(self, number: int) -> None:
        del self.messages[number]
        self.gone.append(number)

    # What is staged

    @precondition(any_lives)
    @rule(
        places=picks,
        key=st.tuples(st.sampled_from("st"), st.integers(1, 6)),
        slices=st.integers(1, 4),
        span_ms=spans,
        term=st.integers(1, 3),
    )
    def claim(self, places: list[int], key: tuple[str, int], slices: int, span_ms: int, term: int) -> None:
        numbers, (source, epoch) = self.pick(places), key
        first, self.sequence = self.sequence + 1, self.sequence + len(numbers)
        until_ms = self.now_ms + span_ms
        about = source, epoch, numbers, [], first, slices, until_ms

        results = self.ledger.claim(Claim("q", self.queue_id, ClaimAction.STAGED, *about), term, self.now_ms)

        takes = [number for number in numbers if number in self.messages and not self.messages[number].until_ms]
        if key in self.claims:
            assert results == self.claims[key].sizes
        elif epoch <= self.staged.get(source, 0):
            assert results == [Result.EPOCH_EXPIRED]
        elif sum(name == source for name, _ in self.claims) >= OPEN_EPOCHS_MAX:
            assert results == [Result.BUSY]
        elif not takes:
            assert results == [Result.UNKNOWN]
        else:
            rows = [(number, (term, first + place)) for place, number in enumerate(takes)]
            self.claims[key], self.staged[source] = Claimed(rows, slices, until_ms), epoch
            assert results == self.claims[key].sizes
            for number, token in rows:
                message = self.messages[number]
                self.messages[number] = message._replace(
                    deliveries=message.deliveries + 1, token=token, until_ms=UNENDING_MS, due_ms=0
                )

    @precondition(lambda self: self.claims)
    @rule(place=st.integers(0, 3), span_ms=spans)
    def renew(self, place: int, span_ms: int) -> None:
        source, _ = list(self.claims)[place % len(self.claims)]
        until_ms = self.now_ms + span_ms
        mine = [key for key in self.claims if key[0] == source]

        entry = Claim("q", self.queue_id, ClaimAction.RENEWED, source, until_ms=until_ms)

        assert self.ledger.claim(entry, 1, self.now_ms) == [len(mine)]
        for key in mine:
            self.claims[key] = self.claims[key]._replace(until_ms=until_ms)

    @precondition(lambda self: self.claims)
    @rule(place=st.integers(0, 3), action=st.sampled_from([ClaimAction.SETTLED, ClaimAction.LAPSED]))
    def end_claim(self, place: int, action: ClaimAction) -> None:
        source, epoch = key = list(self.claims)[place % len(self.claims)]
        is_settled = action is ClaimAction.SETTLED
        ending = [one for one in self.claims if one == key or (is_settled and one[0] == source and one[1] < epoch)]
        ending.sort()
        rows = [row for one in ending for row in self.claims[one].rows]
        numbers, tokens = [number for number, _ in rows], [token for _, token in rows]

        results = self.ledger.claim(Claim("q", self.queue_id, action, source, epoch, numbers, tokens), 1, self.now_ms)

        if not is_settled and self.claims[key].until_ms > self.now_ms:
            assert results == [Result.UNKNOWN] * len(rows)
            return
        for one in ending:
            del self.claims[one]
        for (number, token), result in zip(rows, results, strict=True):
            if is_settled:
                message = self.messages.get(number)
                is_out = message is not None and message.until_ms > 0
                assert result == (self.code_of(number, token) if is_out else Result.UNKNOWN)
                if result == Result.DONE:
                    self.end(number)
            else:
                self.check_lapsed(number, token, result)

    def check_lapsed(self, number: int, token: Token, result: int) -> None:
        message = self.messages.get(number)
        if message is None or not message.until_ms:
            assert result == Result.UNKNOWN
        elif self.is_stale(number, token):
            assert result == Result.STALE
        else:
            nacks, timeouts, disconnects = message.counts
            self.messages[number] = message._replace(until_ms=0, due_ms=0, counts=(nacks, timeouts + 1, disconnects))

    @rule(new=batches, name=st.sampled_from("tuv"), part=st.integers(0, 1), span_ms=spans)
    def stash(self, new: list[Draft], name: str, part: int, span_ms: int) -> None:
        parts = self.stashes.get(name, {})

        results = self.ledger.stash(Stash("q", new, name, part, span_ms), self.now_ms)

        if part in parts:
            assert list(results) == [Result.REPEATED] * len(new)
            return
        expected = self.stored(Publish("q", new, atomic=True))
        assert list(results) == expected
        if expected[0] > 0:
            self.stashes[name] = parts | {part: expected}
            self.stashed_until_ms[name] = self.now_ms + span_ms
            self.hidden.update(expected)

    @rule(
        names=st.lists(st.sampled_from("tuv"), max_size=2, unique=True),
        wrong=st.sampled_from([0, 0, 0, 1]),
        action=st.sampled_from(UnstashAction),
        epoch=st.integers(1, 9),
    )
    def unstash(self, names: list[str], wrong: int, action: UnstashAction, epoch: int) -> None:
        sizes = {name: sum(map(len, parts.values())) for name, parts in self.stashes.items()}
        named = [(name, sizes.get(name, 1) + wrong) for name in names]

        results, _ = self.ledger.unstash(Unstash("q", action, named, "w", epoch), self.now_ms)

        if action is UnstashAction.LAPSED:
            names = [name for name in names if self.stashed_until_ms.get(name, UNENDING_MS) <= self.now_ms]
        if action is not UnstashAction.PUBLISHED or epoch <= self.written.get("w", 0):
            assert results[0] == Result.DONE
            for number in self.take_stashes(names):
                if number in self.messages:
                    self.end(number)
        elif any(sizes.get(name) != size for name, size in named):
            assert results == [Result.STASH_EXPIRED]
        else:
            assert results == [sum(size for _, size in named), epoch]
            self.take_stashes(names)
            self.written["w"] = epoch

    def take_stashes(self, names: list[str]) -> list[int]:
        numbers = [n for name in names for part in self.stashes.pop(name, {}).values() for n in part]
        self.hidden.difference_update(numbers)
        return numbers

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
        self.policies = self.ledger.policies = policies

    @rule(span_ms=st.sampled_from([1, 100, 200, 200, 700, 1_000]))
    def time_goes_on(self, span_ms: int) -> None:
        self.now_ms += span_ms

    @rule()
    def collect(self) -> None:
        delta = self.ledger.collect()
        assert self.ledger.collect() == Delta([], [], [], [])
        assert set(delta.touched) <= self.messages.keys()

    # What must hold

    @invariant()
    def ledger_is_as_the_model_says(self) -> None:
        if not hasattr(self, "ledger"):
            return
        ledger, messages = self.ledger, self.messages
        out = sum(message.until_ms > 0 for message in messages.values())
        assert list(ledger.living_numbers()) == list(messages)
        assert (ledger.living, ledger.out, ledger.size) == (len(messages), out, len(messages) - out)
        assert ledger.bytes == sum(len(message.draft.body) for message in messages.values())
        assert ledger.next_number == self.next_number
        assert not any(map(ledger.lives, self.gone[-20:]))
        for number in [*messages][:20] + [*messages][-20:]:
            self.check_message(number, messages[number])

    def check_message(self, number: int, message: Message) -> None:
        ledger, draft, at_ms = self.ledger, message.draft, message.at_ms
        published_due_ms = at_ms + draft.delay_ms if draft.delay_ms and not message.requeued else 0
        assert ledger.lives(number)
        assert ledger.priority_of(number) == draft.priority
        assert ledger.published_due_of(number) == published_due_ms
        assert ledger.expires_of(number) == (at_ms + draft.expires_ms if draft.expires_ms else 0)
        assert ledger.timeout_of(number) == (draft.timeout_ms or self.policies.timeout * 1000)
        assert ledger.is_out(number) == (message.until_ms > 0)
        assert ledger.is_hidden(number) == (number in self.hidden)
        side = ledger.sides.get(number)
        assert (side is None) == (message.deliveries == 0)
        if side is None:
            assert ledger.due_of(number) == (UNENDING_MS if number in self.hidden else published_due_ms)
            return
        assert ledger.due_of(number) == message.due_ms
        assert (side.nacks, side.timeouts, side.disconnects) == message.counts
        assert side.failures == sum(message.counts) <= side.deliveries
        assert (side.deliveries, side.until_ms, side.error) == (message.deliveries, message.until_ms, message.error)
        assert (side.term, side.sequence) == message.token


LedgerModel.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestLedgerModel = LedgerModel.TestCase
