"""A naive model of a ledger, made of dicts: the rules of the design, written a second time in a slow and simple way.

    what should live, what is claimed, staged and published once <-- rules (in the tests) --> the ledger

It never asks the ledger what it should believe; after each rule it looks whether the ledger is as it says.
"""

from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant

from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import ANY_TOKEN, Draft, Publish, Result, Token
from wakeq.protocol.queue.ledger.ledger import Ledger
from wakeq.protocol.queue.ledger.publishers import SESSION_WINDOW, Limits
from wakeq.protocol.queue.ledger.staging import UNENDING_MS

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
    """`messages` is what should live."""

    def begin_anew(self, policies: Policies) -> None:
        """A ledger that nothing has happened to, and what the model knows of it."""
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

    def forget_staged(self) -> None:
        self.claims: dict[tuple[str, int], Claimed] = {}
        self.staged: dict[str, int] = {}  # source -> its highest epoch
        self.settled: set[tuple[str, int]] = set()
        self.published: set[tuple[str, int]] = set()
        self.marks: dict[tuple[str, str], tuple[int, int]] = {}  # source, reader -> batch, epoch
        self.runs: dict[tuple[str, str], set[str]] = {}
        self.done_marks: set[tuple[str, str]] = set()
        self.stashes: dict[str, dict[int, list[int]]] = {}
        self.made_for: dict[str, int | None] = {}  # stash -> the epoch of the one writer
        self.last_request = {True: ("", ""), False: ("", "")}  # run and id of the last write of an epoch, and of a job
        self.is_job_dropped = False
        self.stashed_until_ms: dict[str, int] = {}
        self.written: dict[str, int] = {}  # writer -> its highest epoch
        self.has_job_run = False  # under the one name that is used
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

    def code_of(self, number: int, token: Token) -> int:
        if number not in self.messages:
            return Result.UNKNOWN
        return Result.STALE if self.is_stale(number, token) else Result.DONE

    def code_if_out(self, number: int, token: Token) -> int:
        """The same of what can only be done to a message that somebody holds."""
        message = self.messages.get(number)
        return self.code_of(number, token) if message is not None and message.until_ms else Result.UNKNOWN

    def is_published(self, number: int) -> bool:
        """Whether what came of a message is published: it is under a claim that cannot return it."""
        message = self.messages.get(number)
        rows = [row for key in self.published.intersection(self.claims) for row in self.claims[key].rows]
        return message is not None and (number, message.token) in rows

    def end(self, number: int) -> None:
        del self.messages[number]
        self.gone.append(number)

    # What must hold

    @invariant()
    def ledger_is_as_the_model_says(self) -> None:
        if not hasattr(self, "ledger"):
            return
        ledger, messages = self.ledger, self.messages
        out = sum(message.until_ms > 0 for message in messages.values())
        assert list(ledger.columns.living_numbers()) == list(messages)
        assert (ledger.columns.living, ledger.deliveries.leased, ledger.size) == (
            len(messages),
            out,
            len(messages) - out,
        )
        assert ledger.columns.bytes == sum(len(message.draft.body) for message in messages.values())
        assert ledger.columns.next_number == self.next_number
        assert not any(map(ledger.columns.lives, self.gone[-20:]))
        for number in [*messages][:20] + [*messages][-20:]:
            self.check_message(number, messages[number])

    def check_message(self, number: int, message: Message) -> None:
        ledger, draft, at_ms = self.ledger, message.draft, message.at_ms
        published_due_ms = at_ms + draft.delay_ms if draft.delay_ms and not message.requeued else 0
        assert ledger.columns.lives(number)
        assert ledger.columns.priority_of(number) == draft.priority
        assert ledger.columns.published_due_of(number) == published_due_ms
        assert ledger.columns.expires_of(number) == (at_ms + draft.expires_ms if draft.expires_ms else 0)
        assert ledger.timeout_of(number) == (draft.timeout_ms or self.policies.timeout * 1000)
        assert ledger.deliveries.is_leased(number) == (message.until_ms > 0)
        assert ledger.columns.is_hidden(number) == (number in self.hidden)
        side = ledger.deliveries.records.get(number)
        assert (side is None) == (message.deliveries == 0)
        if side is None:
            assert ledger.due_of(number) == (UNENDING_MS if number in self.hidden else published_due_ms)
            return
        assert ledger.due_of(number) == message.due_ms
        assert (side.nacks, side.timeouts, side.disconnects) == message.counts
        assert side.failures == sum(message.counts) <= side.deliveries
        assert (side.deliveries, side.until_ms, side.error) == (message.deliveries, message.until_ms, message.error)
        assert (side.term, side.sequence) == message.token
