"""The rules of the ledger's model for staging: claimed epochs, and stashes that wait to be published."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.helpers.models.ledger import Claimed, LedgerModel, batches, picks, spans
from tests.helpers.steps import in_one_go
from wakeq.protocol.log.entries import Claim, ClaimAction, Draft, Publish, Result, Stash, Unstash, UnstashAction
from wakeq.protocol.queue.ledger.staging import OPEN_EPOCHS_MAX, UNENDING_MS


class StagingModel(LedgerModel):
    """What a pipeline does to a ledger, beside everything else."""

    @precondition(LedgerModel.any_lives)
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

        results = in_one_go(self.ledger.claim(Claim("q", self.queue_id, ClaimAction.STAGED, *about), term, self.now_ms))

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

        assert in_one_go(self.ledger.claim(entry, 1, self.now_ms)) == [len(mine)]
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

        results = in_one_go(
            self.ledger.claim(Claim("q", self.queue_id, action, source, epoch, numbers, tokens), 1, self.now_ms)
        )

        if not is_settled and self.claims[key].until_ms > self.now_ms:
            assert results == [Result.UNKNOWN] * len(rows)
            return
        for one in ending:
            del self.claims[one]
        for (number, token), result in zip(rows, results, strict=True):
            assert result == self.code_if_out(number, token)
            if result == Result.DONE and is_settled:
                self.end(number)
            elif result == Result.DONE:
                message = self.messages[number]
                nacks, timeouts, disconnects = message.counts
                counts = (nacks, timeouts + 1, disconnects)
                self.messages[number] = message._replace(until_ms=0, due_ms=0, counts=counts)

    @rule(new=batches, name=st.sampled_from("tuv"), part=st.integers(0, 1), span_ms=spans)
    def stash(self, new: list[Draft], name: str, part: int, span_ms: int) -> None:
        parts = self.stashes.get(name, {})

        results = in_one_go(self.ledger.stash(Stash("q", new, name, part, span_ms), self.now_ms))

        if part in parts:
            assert list(results) == [Result.REPEATED] * len(new)
            self.stashed_until_ms[name] = self.now_ms + span_ms
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
        epoch=st.integers(0, 9),  # 0: a job
    )
    def unstash(self, names: list[str], wrong: int, action: UnstashAction, epoch: int) -> None:
        sizes = {name: sum(map(len, parts.values())) for name, parts in self.stashes.items()}
        named = [(name, sizes.get(name, 1) + wrong) for name in names]

        results, _ = in_one_go(self.ledger.unstash(Unstash("q", action, named, "w", epoch), self.now_ms))

        if action is UnstashAction.LAPSED:
            names = [name for name in names if self.stashed_until_ms.get(name, UNENDING_MS) <= self.now_ms]
        is_publish, written = action is UnstashAction.PUBLISHED, self.written.get("w", 0)
        if is_publish and 0 < epoch < written:
            assert results == [Result.EPOCH_OLD]
        elif is_publish and not epoch and not names:
            assert results == [Result.DONE, written]
        elif not is_publish or (epoch == written if epoch else self.has_job_run):
            assert results[0] == Result.DONE
            for number in self.take_stashes(names):
                if number in self.messages:
                    self.end(number)
        elif any(sizes.get(name) != size for name, size in named):
            assert results == [Result.STASH_EXPIRED]
        else:
            assert results == [sum(size for _, size in named), epoch]
            self.take_stashes(names)
            if epoch:
                self.written["w"] = epoch
            self.has_job_run |= not epoch

    def take_stashes(self, names: list[str]) -> list[int]:
        numbers = [n for name in names for part in self.stashes.pop(name, {}).values() for n in part]
        self.hidden.difference_update(numbers)
        return numbers
