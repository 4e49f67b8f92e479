"""Columns: the messages of one incarnation of a queue by number: their sizes, and the fields that only some have.

    drafts, moment --> append --> columns --> what a message was published with; it lives until it is removed

A part of the ledger: it keeps what was published, and knows nothing of deliveries.  Pure.
"""

from array import array
from collections.abc import Container, Iterator, Sequence

from wakeq.protocol.log.entries import Draft
from wakeq.protocol.queue.empty import EMPTY_DICT, EMPTY_LIST
from wakeq.protocol.queue.ledger.chunks import CHUNK, CHUNK_SHIFT, MASK, Chunk
from wakeq.protocol.queue.ledger.uniform import UniformBatch
from wakeq.protocol.queue.order.fifo import is_run

ALL = slice(None)


class Columns:
    """Numbers run on from 1; CHUNK neighbours share a Chunk, which is dropped with the last living one of them.

    The ledger appends and removes single messages by itself, on these very fields: each is one call less.
    """

    __slots__ = (
        "_aliases_gone", "aliased", "aliases", "bytes", "chunks", "dirty_chunks", "has_moments", "has_timeouts",
        "living", "next_number", "only_sizes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.next_number = 1
        self.chunks: dict[int, Chunk] = {}  # by the upper digits of the numbers
        self.living = 0  # how many messages there are
        self.bytes = 0  # of their bodies and headers
        self.only_sizes = True  # whether no message ever had a priority, delay, expiry or timeout of its own
        self.has_moments = False  # whether any message ever had a delay or an expiry
        self.has_timeouts = False  # whether any message ever had its own
        self.aliases: dict[str, int] = EMPTY_DICT  # uids of imported messages ...
        self.aliased: dict[int, str] = EMPTY_DICT  # ... by number
        self._aliases_gone: list[int] = EMPTY_LIST  # they stay in these maps until they are collected
        self.dirty_chunks: dict[int, None] = {}  # in no order; an empty dict is a third of an empty set

    # --- looking ---------------------------------------------------------------------------------------------------

    def lives(self, number: int) -> bool:
        chunk = self.chunks.get(number >> CHUNK_SHIFT)
        offset = number & MASK
        return chunk is not None and number > 0 and offset < len(chunk.sizes) and chunk.sizes[offset] != 0

    def living_among(self, numbers: Sequence[int]) -> Sequence[int]:
        """Return the numbers that live; the very sequence if all do, which is cheap to find out for a run."""
        if numbers and numbers[0] > 0 and is_run(numbers):
            parts = (
                chunk.sizes[start:end] for _, chunk, start, end in self._chunks_of(range(numbers[0], numbers[-1] + 1))
            )
            if sum(len(sizes) - sizes.count(0) for sizes in parts) == len(numbers):
                return numbers
        return [number for number in numbers if self.lives(number)]

    def count_within(self, numbers: Sequence[int], bytes_max: int) -> int:
        """Return how many of these living messages, from the first on, have at most so many bytes of bodies in all."""
        if numbers and is_run(numbers):
            parts = (
                chunk.sizes[start:end] for _, chunk, start, end in self._chunks_of(range(numbers[0], numbers[-1] + 1))
            )
            if sum(map(sum, parts)) - len(numbers) <= bytes_max:
                return len(numbers)
        for place, number in enumerate(numbers):
            bytes_max -= self.chunks[number >> CHUNK_SHIFT].sizes[number & MASK] - 1
            if bytes_max < 0:
                return place
        return len(numbers)

    def priority_of(self, number: int) -> int:
        column = self.chunks[number >> CHUNK_SHIFT].priorities
        return 0 if column is None else column[number & MASK]

    def expires_of(self, number: int) -> int:
        """Return the moment at which a living message expires, 0 for never."""
        column = self.chunks[number >> CHUNK_SHIFT].expiries
        return 0 if column is None else column[number & MASK]

    def own_timeout_of(self, number: int) -> int:
        column = self.chunks[number >> CHUNK_SHIFT].timeouts
        return 0 if column is None else column[number & MASK]

    def published_due_of(self, number: int) -> int:
        column = self.chunks[number >> CHUNK_SHIFT].dues
        due_ms = 0 if column is None else column[number & MASK]
        return due_ms if due_ms >= 0 else -1 - due_ms

    def is_hidden(self, number: int) -> bool:
        """Whether a living message is stashed."""
        column = self.chunks[number >> CHUNK_SHIFT].dues
        return column is not None and column[number & MASK] < 0

    def are_plain(self, numbers: Sequence[int] | range) -> bool:
        """Whether new messages, published together, have no priority, delay or expiry; True only if it is certain."""
        if not isinstance(numbers, range) or not numbers:
            return False
        if self.only_sizes:
            return True
        for chunk_id in range(numbers[0] >> CHUNK_SHIFT, (numbers[-1] >> CHUNK_SHIFT) + 1):
            chunk = self.chunks[chunk_id]
            if chunk.only_sizes:
                continue
            if chunk.priorities is not None or chunk.dues is not None or chunk.expiries is not None:
                return False
        return True

    def living_numbers(self, after: int = 0) -> Iterator[int]:
        """Yield every living number behind the given one, in the order of publication."""
        first_chunk = after >> CHUNK_SHIFT
        for chunk_id in sorted(chunk_id for chunk_id in self.chunks if chunk_id >= first_chunk):
            base = chunk_id << CHUNK_SHIFT
            for offset, size in enumerate(self.chunks[chunk_id].sizes):  # a look at the first few is frequent
                if size and base + offset > after:
                    yield base + offset

    def living_by_chunk(self) -> Iterator[Sequence[int]]:
        """Yield the living numbers of each chunk that has any; they are a range if those that are gone went first."""
        for chunk_id in sorted(self.chunks):
            base, chunk = chunk_id << CHUNK_SHIFT, self.chunks[chunk_id]
            sizes = chunk.sizes
            start = len(sizes) - chunk.living
            if 0 not in sizes[start:]:
                numbers: Sequence[int] = range(base + start, base + len(sizes))
            else:
                numbers = [base + place for place, size in enumerate(sizes) if size]
            if numbers:
                yield numbers

    def living_between(self, after: int, last: int, count: int) -> list[int]:
        """Return the first living numbers behind one, in the order of publication, none above `last`, nor hidden."""
        numbers: list[int] = []
        for chunk_id in sorted(chunk_id for chunk_id in self.chunks if after >> CHUNK_SHIFT <= chunk_id):
            base = chunk_id << CHUNK_SHIFT
            if base > last or len(numbers) >= count:
                break
            sizes, dues = self.chunks[chunk_id].sizes, self.chunks[chunk_id].dues
            found = [base + place for place, size in enumerate(sizes) if size and after < base + place <= last]
            numbers += found if dues is None else [number for number in found if dues[number & MASK] >= 0]
        return numbers[:count]

    # --- adding and removing -----------------------------------------------------------------------------------------

    def append(self, drafts: Sequence[Draft], at_ms: int, *, alike: bool = False, among: slice = ALL) -> None:
        """Take new messages, or a slice of them; `alike` ones differ only in their bodies."""
        first, count, _ = among.indices(len(drafts))
        done = first
        asked = (drafts.shape,) if type(drafts) is UniformBatch else drafts[:1] if alike else drafts[among]
        plain = not any([d.priority or d.delay_ms or d.expires_ms or d.timeout_ms or d.alias for d in asked])
        while done < count:
            number = self.next_number
            chunk_id, offset = number >> CHUNK_SHIFT, number & MASK
            chunk = self.chunks.get(chunk_id)
            if chunk is None:
                chunk = self.chunks[chunk_id] = Chunk(offset)
            stop = min(count, done + CHUNK - offset)
            if not plain:
                self._append_columns(chunk, drafts[done:stop], at_ms, number)
            if type(drafts) is UniformBatch:
                sizes = [size + 1 for size in drafts.sizes[done:stop]]
            else:
                sizes = [len(draft.body) + len(draft.headers) + 1 for draft in drafts[done:stop]]
            chunk.sizes.extend(sizes)
            chunk.level()
            chunk.living += len(sizes)
            self.bytes += sum(sizes) - len(sizes)
            self.next_number += len(sizes)
            self.dirty_chunks[chunk_id] = None
            done = stop
        self.living += count - first

    def _append_columns(self, chunk: Chunk, part: Sequence[Draft], at_ms: int, number: int) -> None:
        chunk.fill("priorities", [d.priority for d in part])
        chunk.fill("dues", [at_ms + d.delay_ms if d.delay_ms else 0 for d in part])
        chunk.fill("expiries", [at_ms + d.expires_ms if d.expires_ms else 0 for d in part])
        chunk.fill("timeouts", [d.timeout_ms for d in part])
        self._note_columns(chunk)
        for i, draft in enumerate(part):
            if draft.alias:
                self.keep_alias(number + i, draft.alias)

    def keep_alias(self, number: int, alias: str) -> None:
        """Keep the uid that an imported message has."""
        if self.aliases is EMPTY_DICT:
            self.aliases, self.aliased = {}, {}
        self.aliases[alias] = number
        self.aliased[number] = alias

    def remove(self, number: int) -> None:
        """Take a living message out of its chunk."""
        chunk_id, offset = number >> CHUNK_SHIFT, number & MASK
        chunk = self.chunks[chunk_id]
        self.bytes -= chunk.sizes[offset] - 1
        chunk.sizes[offset] = 0
        chunk.living -= 1
        self.living -= 1
        if not chunk.living and len(chunk.sizes) == CHUNK:
            del self.chunks[chunk_id]
        self.dirty_chunks[chunk_id] = None
        if self.aliased and number in self.aliased:
            self.forget_alias(number)

    def forget_alias(self, number: int) -> None:
        """Note that an imported message is gone; its uid can be looked up until this is collected."""
        if not self._aliases_gone:
            self._aliases_gone = []
        self._aliases_gone.append(number)

    def remove_run(self, numbers: range) -> bool:
        """Take messages in a row out of their chunks; False, and nothing is done, if one of them does not live."""
        pieces = list(self._chunks_of(numbers))
        parts = [chunk.sizes[start:end] for _, chunk, start, end in pieces]
        if numbers.start < 1 or sum(map(len, parts)) < len(numbers) or any([0 in part for part in parts]):
            return False
        for (chunk_id, chunk, start, end), part in zip(pieces, parts, strict=True):
            chunk.sizes[start:end] = array("I", bytes(part.itemsize * len(part)))
            chunk.living -= len(part)
            if not chunk.living and len(chunk.sizes) == CHUNK:
                del self.chunks[chunk_id]
            self.dirty_chunks[chunk_id] = None
            self.bytes -= sum(part) - len(part)
        self.living -= len(numbers)
        return True

    # --- hiding ----------------------------------------------------------------------------------------------------

    def hide(self, numbers: range) -> None:
        """Hide new messages: their due moments turn negative, -1 for none."""
        for chunk_id, chunk, start, end in self._chunks_of(numbers):
            if chunk.dues is None:
                chunk.put("dues", array("q", [0]) * len(chunk.sizes))
                self.only_sizes = False
            dues = chunk.dues
            assert dues is not None, "just put"
            dues[start:end] = array("q", [-1 - due_ms for due_ms in dues[start:end]])
            self.dirty_chunks[chunk_id] = None

    def reveal(self, numbers: range) -> None:
        """Undo `hide`."""
        for chunk_id, chunk, start, end in self._chunks_of(numbers):
            dues = chunk.dues
            assert dues is not None, "it is hidden"
            dues[start:end] = array("q", [-1 - due_ms for due_ms in dues[start:end]])
            if not any(dues):
                chunk.drop_dues()
            self.dirty_chunks[chunk_id] = None

    def _chunks_of(self, numbers: range) -> Iterator[tuple[int, Chunk, int, int]]:
        """Yield the chunks in which any of the numbers lives: id, chunk, and the places from where to where."""
        at = numbers.start
        while at < numbers.stop:
            chunk_id, start = at >> CHUNK_SHIFT, at & MASK
            end = min(CHUNK, start + numbers.stop - at)
            chunk = self.chunks.get(chunk_id)
            if chunk is not None:
                yield chunk_id, chunk, start, end
            at += end - start

    def _note_columns(self, chunk: Chunk) -> None:
        self.only_sizes = self.only_sizes and chunk.only_sizes
        self.has_timeouts = self.has_timeouts or chunk.timeouts is not None
        self.has_moments = self.has_moments or chunk.dues is not None or chunk.expiries is not None

    # --- to the state store and back -------------------------------------------------------------------------------

    def collect_chunks(self, records: Container[int]) -> list[tuple[int, Chunk | None, Sequence[int]]]:
        """Return the chunks that changed since the last call, copied, and the offsets of those that have a record."""
        dirty = list(self.dirty_chunks)
        self.dirty_chunks.clear()
        return [self._collect_chunk(chunk_id, records) for chunk_id in dirty]

    def _collect_chunk(self, chunk_id: int, records: Container[int]) -> tuple[int, Chunk | None, Sequence[int]]:
        chunk = self.chunks.get(chunk_id)
        if chunk is None or chunk.living == 0:
            return chunk_id, None, ()
        base = chunk_id << CHUNK_SHIFT
        with_record = [i for i in range(len(chunk.sizes)) if base + i in records] if records else ()
        return chunk_id, chunk.copied(), with_record

    def collect_aliases(self) -> list[str]:
        """Return the uids of imported messages that are gone, which cannot be looked up from now on."""
        gone = [self.aliased.pop(number) for number in self._aliases_gone]
        for alias in gone:
            self.aliases.pop(alias, None)
        self._aliases_gone = EMPTY_LIST
        return gone

    def restore_chunk(self, chunk_id: int, chunk: Chunk) -> None:
        """Take back stored columns."""
        self.chunks[chunk_id] = chunk
        self._note_columns(chunk)
        self.living += chunk.living
        self.bytes += sum(chunk.sizes) - chunk.living
