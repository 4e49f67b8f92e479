"""UniformBatch: messages that nothing but their bodies tells apart, in one buffer instead of an object for each.

    a block, a batch of texts, items of the log --> UniformBatch --> items of the log, sizes, bodies; single Drafts

Pure.  To whoever does not ask what it is, it is a sequence of drafts.
"""

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice, pairwise
from operator import sub
from typing import overload

from wakeq.protocol.log.entries import Draft
from wakeq.protocol.log.layout import pack_alike

UNIFORM_MIN = 8  # fewer are cheaper as objects, where nobody has them in one buffer already
PLAIN = Draft(b"")


class UniformBatch(Sequence[Draft]):
    """Bodies one behind the other, the size of each, and what all of them share."""

    __slots__ = ("_places", "bodies", "shape", "sizes")

    def __init__(
        self, bodies: bytes, sizes: "array[int]", shape: Draft = PLAIN, places: "array[int] | None" = None
    ) -> None:
        self.bodies = bodies
        self.sizes = sizes
        self.shape = shape  # a draft without a body, headers or alias
        self._places = places  # where each body begins and the last one ends, once somebody has asked

    @property
    def places(self) -> "array[int]":
        """Where each body begins, and the last one ends.  Two threads may ask: both find the same."""
        places = self._places
        if places is None:
            places = self._places = array("I", accumulate(self.sizes, initial=0))
        return places

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, place: int) -> Draft: ...
    @overload
    def __getitem__(self, place: slice) -> list[Draft]: ...
    def __getitem__(self, place: int | slice) -> Draft | list[Draft]:
        if type(place) is slice:
            start, stop, _ = place.indices(len(self))
            assert place.step is None, "nobody has asked for every second one"
            return list(self._between(start, stop))
        if not 0 <= place < len(self.sizes):
            raise IndexError(place)
        start = self.places[place]
        return self._with_body(self.bodies[start : start + self.sizes[place]])

    def __iter__(self) -> Iterator[Draft]:
        return self._between(0, len(self))

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def _between(self, start: int, stop: int) -> Iterator[Draft]:
        return map(Draft if self.shape is PLAIN else self._with_body, self.bodies_between(start, stop))

    def _with_body(self, body: bytes) -> Draft:
        shape = self.shape
        if shape is PLAIN:
            return Draft(body)
        return Draft(body, shape.priority, shape.delay_ms, shape.expires_ms, shape.timeout_ms)

    def bodies_between(self, start: int, stop: int) -> list[bytes]:
        """Return the bodies from one place on, before another."""
        whole = self.bodies
        return [whole[begin:end] for begin, end in pairwise(self.places[start : stop + 1])]

    def items(self, numbers: int | Sequence[int]) -> bytes:
        """Return the items of an entry of the log; `numbers` as in `pack_alike`."""
        return pack_alike(self.sizes, self.shape, numbers)


def shape_of(priority: int, delay_ms: int, expires_ms: int, timeout_ms: int) -> Draft:
    """Return what messages share beside their bodies."""
    shared = priority, delay_ms, expires_ms, timeout_ms
    return Draft(b"", *shared) if any(shared) else PLAIN


def uniform_bodies(bodies: Sequence[bytes], shape: Draft = PLAIN) -> UniformBatch:
    """Return messages with these bodies."""
    return UniformBatch(b"".join(bodies), array("I", map(len, bodies)), shape)


def uniform_texts(texts: Sequence[str], shape: Draft = PLAIN) -> UniformBatch:
    """Return messages with these texts as their bodies."""
    whole = "".join(texts)
    if whole.isascii():
        return UniformBatch(whole.encode(), array("I", map(len, texts)), shape)
    return uniform_bodies(list(map(str.encode, texts)), shape)


def uniform_in_places(bodies: bytes, places: "array[int]", shape: Draft = PLAIN) -> UniformBatch:
    """Return messages whose bodies begin, and the last of them ends, at these places."""
    return UniformBatch(bodies, array("I", map(sub, islice(places, 1, None), places)), shape, places)
