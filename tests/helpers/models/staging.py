"""The rules of the ledger's model for staging: claimed epochs, and stashes that wait to be published."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.helpers.models.ledger import Claimed, LedgerModel, batches, picks, spans
from tests.helpers.steps import in_one_go
from wakeq.protocol.log.entries import Claim, ClaimAction, Draft, Publish, Result, Stash, Unstash, UnstashAction
from wakeq.protocol.queue.ledger.staging import OPEN_EPOCHS_MAX, UNENDING_MS

ENDS_WELL = (ClaimAction.SETTLED, ClaimAction.FINISHED)


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
            assert results == ([Result.EPOCH_SETTLED] if key in self.published else self.claims[key].sizes)
        elif epoch <= self.staged.get(source, 0):
            assert results == [Result.EPOCH_SETTLED if key in self.settled else Result.EPOCH_EXPIRED]
        elif sum(name == source for name, _ in self.claims) >= OPEN_EPOCHS_MAX:
            assert results == [Result.BUSY]
        elif not takes:
            assert results == [Result.UNKNOWN]
        else:
            without_messages = range(self.staged.get(source, 0) + 1, epoch)
            self.settled.update((source, between) for between in without_messages)
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

        mine = [key for key in mine if self.claims[key].until_ms > self.now_ms]
        expected = len(mine) if mine else Result.EPOCH_EXPIRED
        assert in_one_go(self.ledger.claim(entry, 1, self.now_ms)) == [expected]
        for key in mine:
            self.claims[key] = self.claims[key]._replace(until_ms=until_ms)

    @precondition(lambda self: self.claims)
    @rule(
        place=st.integers(0, 3),
        action=st.sampled_from([ClaimAction.SETTLED, ClaimAction.LAPSED, ClaimAction.RELEASED, ClaimAction.FINISHED]),
    )
    def end_claim(self, place: int, action: ClaimAction) -> None:
        source, epoch = key = list(self.claims)[place % len(self.claims)]
        is_one, ends_well = action in (ClaimAction.LAPSED, ClaimAction.FINISHED), action in ENDS_WELL
        ending = [one for one in self.claims if one == key or (not is_one and one[0] == source and one[1] < epoch)]
        ending.sort()
        rows = [row for one in ending for row in self.claims[one].rows]
        numbers, tokens = [number for number, _ in rows], [token for _, token in rows]

        results = in_one_go(
            self.ledger.claim(Claim("q", self.queue_id, action, source, epoch, numbers, tokens), 1, self.now_ms)
        )

        is_early = is_one and self.claims[key].until_ms > self.now_ms
        if is_early or (is_one and ends_well != (key in self.published)):
            assert results == [Result.UNKNOWN] * len(rows)
            return
        if action is ClaimAction.RELEASED and self.published.intersection(ending):
            assert results == [Result.REJECTED] * len(rows)
            return
        for one in ending:
            del self.claims[one]
        if ends_well:
            self.settled.update(ending)
        for (number, token), result in zip(rows, results, strict=True):
            assert result == self.code_if_out(number, token)
            if result == Result.DONE and ends_well:
                self.end(number)
            elif result == Result.DONE:
                message = self.messages[number]
                nacks, timeouts, disconnects = message.counts
                counts = (nacks, timeouts + (action is ClaimAction.LAPSED), disconnects)
                self.messages[number] = message._replace(until_ms=0, due_ms=0, counts=counts)

    @rule(
        key=st.tuples(st.sampled_from("st"), st.integers(1, 6)),
        place=st.integers(0, 3),
        reader=st.sampled_from("qr"),
        batch=st.integers(1, 2),
        run=st.sampled_from("xy"),
    )
    def read(self, key: tuple[str, int], place: int, reader: str, batch: int, run: str) -> None:
        source, epoch = list(self.claims)[place % len(self.claims)] if self.claims and place else key
        mark, is_open, whose = (batch, epoch), (source, epoch) in self.claims, (source, reader)
        before = self.marks.get(whose, (0, 0))

        entry = Claim("q", self.queue_id, ClaimAction.READ, source, epoch, reader=reader, batch=batch, run=run)
        results = in_one_go(self.ledger.claim(entry, 1, self.now_ms))

        if before[0] > batch or epoch > self.staged.get(source, 0):
            assert results == [Result.UNKNOWN]
            return
        assert results == [Result.DONE]
        if mark != before:
            self.marks[whose], self.runs[whose] = mark, set()
            self.done_marks.discard(whose)
        if is_open and ((source, epoch) not in self.published or whose in self.done_marks):
            self.runs[whose].add(run)

    @rule(place=st.integers(0, 3), reader=st.sampled_from("qr"), batch=st.integers(1, 2), run=st.sampled_from("xy"))
    def publish_read(self, place: int, reader: str, batch: int, run: str) -> None:
        """As the part of an Unstash, whether it may be done or not: then only as a repetition."""
        if self.marks and place:
            (_, reader), (batch, _) = list(self.marks.items())[place % len(self.marks)]
        mine = {whose: mark[1] for whose, mark in self.marks.items() if (whose[1], mark[0]) == (reader, batch)}
        expected = Result.DONE if mine else Result.EPOCH_EXPIRED
        for source in self.ledger.staging.sources if self.ledger.staging else ():
            key = source, mine.get((source, reader), 0)
            if expected or not key[1] or run not in self.runs[source, reader]:
                continue
            if (source, reader) in self.done_marks or key in self.published or key in self.settled:
                expected = Result.EPOCH_SETTLED
            elif key not in self.claims:
                expected = Result.EPOCH_EXPIRED

        judged = self.ledger.judge_published(reader, batch, run)
        part = Claim("q", 0, ClaimAction.PUBLISHED, "", batch, reader=reader, batch=batch, run=run)
        in_one_go(self.ledger.claim(part, 1, self.now_ms))

        assert judged == expected
        for (source, _), epoch in mine.items():
            self.done_marks.add((source, reader))
            (self.published if (source, epoch) in self.claims else self.settled).add((source, epoch))

    @rule(
        new=batches,
        name=st.sampled_from("tuv"),
        part=st.integers(0, 1),
        span_ms=spans,
        made_for=st.sampled_from([None, 0, 1, 5, 9]),
    )
    def stash(self, new: list[Draft], name: str, part: int, span_ms: int, made_for: int | None) -> None:
        parts, about = self.stashes.get(name, {}), () if made_for is None else ("w", made_for)

        results = in_one_go(self.ledger.stash(Stash("q", new, name, part, span_ms, *about), self.now_ms))

        if made_for is not None and (made_for <= self.written.get("w", 0) if made_for else self.has_job_run):
            assert list(results) == [Result.EPOCH_OLD] * len(new)
            return
        if part in parts:
            assert list(results) == [Result.REPEATED] * len(new)
            self.stashed_until_ms[name] = self.now_ms + span_ms
            return
        expected = self.stored(Publish("q", new, atomic=True))
        assert list(results) == expected
        if expected[0] > 0:
            self.made_for.setdefault(name, made_for)
            self.stashes[name] = parts | {part: expected}
            self.stashed_until_ms[name] = self.now_ms + span_ms
            self.hidden.update(expected)

    @rule(
        names=st.lists(st.sampled_from("tuv"), max_size=2, unique=True),
        wrong=st.sampled_from([0, 0, 0, 1]),
        action=st.sampled_from(UnstashAction),
        epoch=st.integers(0, 9),  # 0: a job
        run=st.sampled_from(["", "x", "y"]),
        id=st.sampled_from("ij"),
    )
    def unstash(self, names: list[str], wrong: int, action: UnstashAction, epoch: int, run: str, id: str) -> None:
        sizes = {name: sum(map(len, parts.values())) for name, parts in self.stashes.items()}
        named = [(name, sizes.get(name, 1) + wrong) for name in names]

        entry = Unstash("q", action, named, "w", epoch, run, id)
        results = in_one_go(self.ledger.unstash(entry, self.now_ms)).results

        if action is UnstashAction.LAPSED:
            names = [name for name in names if self.stashed_until_ms.get(name, UNENDING_MS) <= self.now_ms]
        is_publish, written = action is UnstashAction.PUBLISHED, self.written.get("w", 0)
        drops = [one for one, at in self.made_for.items() if at is not None and (0 < at <= epoch if epoch else not at)]
        is_repeated = epoch == written > 0 if epoch else self.has_job_run and not self.is_job_dropped
        last_run, last_id = self.last_request[epoch > 0]
        if is_publish and 0 < epoch < written:
            assert results == [Result.EPOCH_OLD]
        elif is_publish and not epoch and not names:
            assert results == [Result.DONE, written]
        elif is_publish and is_repeated and run and (run, id) == (last_run, "i" if last_id == "j" else "j"):
            assert results == [Result.EPOCH_OLD]
        elif not is_publish or is_repeated:
            assert results[0] == Result.DONE
            if action is not UnstashAction.LAPSED:
                names = [*names, *drops]
                if is_publish and run:
                    self.last_request[epoch > 0] = run, id
                if not is_publish and not epoch and not self.has_job_run:
                    self.has_job_run = self.is_job_dropped = True
            self.drop(names)
        elif any(sizes.get(name) != size for name, size in named):
            assert results == [Result.STASH_EXPIRED]
        else:
            assert results == [sum(size for _, size in named), epoch]
            self.take_stashes(names)
            self.drop(drops)
            self.last_request[epoch > 0] = run, id
            if epoch:
                self.written["w"] = epoch
            else:
                self.has_job_run, self.is_job_dropped = True, False

    def drop(self, names: list[str]) -> None:
        for number in self.take_stashes(names):
            if number in self.messages:
                self.end(number)

    def take_stashes(self, names: list[str]) -> list[int]:
        for name in names:
            self.made_for.pop(name, None)
        numbers = [n for name in names for part in self.stashes.pop(name, {}).values() for n in part]
        self.hidden.difference_update(numbers)
        return numbers
