"""Alike: messages that nothing but their bodies tells apart, in one buffer instead of an object for each.

    a block, a batch of texts, items of the log --> Alike --> items of the log, sizes, bodies; a Draft of what goes out

Pure.  To whoever does not ask what it is, it is a sequence of drafts.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice, pairwise
from operator import sub
from typing import overload

from wakeq.protocol.commands import Draft
from wakeq.protocol.record_layout import pack_alike

ALIKE_MIN = 8  # fewer are cheaper as objects, where nobody has them in one buffer already
PLAIN = Draft(b"")


class Alike(Sequence[Draft]):
    """Bodies one behind the other, the places from 0 on where each begins and the last ends, and what all share."""

    __slots__ = ("bodies", "places", "shape")

    def __init__(self, bodies: bytes, places: "array[int]", shape: Draft = PLAIN) -> None:
        self.bodies = bodies
        self.places = places
        self.shape = shape  # a draft without a body, headers or alias

    def __len__(self) -> int:
        return len(self.places) - 1

    @overload
    def __getitem__(self, place: int) -> Draft: ...
    @overload
    def __getitem__(self, place: slice) -> list[Draft]: ...
    def __getitem__(self, place: int | slice) -> Draft | list[Draft]:
        if type(place) is slice:
            start, stop, _ = place.indices(len(self))
            assert place.step is None, "nobody has asked for every second one"
            return list(self._between(start, stop))
        if not 0 <= place < len(self.places) - 1:
            raise IndexError(place)
        return self._with_body(self.bodies[self.places[place] : self.places[place + 1]])

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

    def sizes(self, start: int, stop: int) -> list[int]:
        """Return the sizes of the bodies from one place on, before another."""
        return sizes_between(self.places[start : stop + 1])

    def items(self, ordinal: int) -> bytes:
        """Return the items of an entry of the log, all with one number in their session."""
        return pack_alike(self.sizes(0, len(self)), self.shape, ordinal)


def sizes_between(places: Sequence[int]) -> list[int]:
    """Return how far it is from each place to the next."""
    return list(map(sub, islice(places, 1, None), places))


def shape_of(priority: int, delay_ms: int, expires_ms: int, timeout_ms: int) -> Draft:
    """Return what messages share beside their bodies."""
    shared = priority, delay_ms, expires_ms, timeout_ms
    return Draft(b"", *shared) if any(shared) else PLAIN


def alike_bodies(bodies: Sequence[bytes], shape: Draft = PLAIN) -> Alike:
    """Return messages with these bodies."""
    return alike_of_sizes(b"".join(bodies), map(len, bodies), shape)


def alike_texts(texts: Sequence[str], shape: Draft = PLAIN) -> Alike:
    """Return messages with these texts as their bodies."""
    whole = "".join(texts)
    if whole.isascii():
        return Alike(whole.encode(), _places_of(map(len, texts)), shape)
    return alike_bodies(list(map(str.encode, texts)), shape)


def alike_of_sizes(bodies: bytes, sizes: Iterable[int], shape: Draft) -> Alike:
    """Return messages whose bodies have these sizes, together no more than there is."""
    shared = shape.priority, shape.delay_ms, shape.expires_ms, shape.timeout_ms
    return Alike(bodies, _places_of(sizes), shape if any(shared) else PLAIN)


def _places_of(sizes: Iterable[int]) -> "array[int]":
    return array("I", accumulate(sizes, initial=0))
