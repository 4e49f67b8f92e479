"""The uid of a message: 7 base-62 digits of its queue's id, `_`, 8 base-62 digits of its number.

    queue id (the log index that created it), number --> 16 ASCII characters, and back

The alphabet is in ASCII order, so the order of texts is the order of (queue id, number), in LMDB too. A uid that was
not made here is valid all the same: imported records keep theirs, and one of them may look like ours, so the map of
imported uids is asked first. Reading any uid never raises.
"""

from collections.abc import Sequence
from functools import lru_cache

from wakeq.protocol.queue.order.fifo import is_run

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
SEPARATOR = "_"
QUEUE_DIGITS = 7
NUMBER_DIGITS = 8
QUEUE_ID_MAX = 62**QUEUE_DIGITS - 1
NUMBER_MAX = 62**NUMBER_DIGITS - 1
UID_CHARACTERS = QUEUE_DIGITS + 1 + NUMBER_DIGITS
PREFIX_CHARACTERS = QUEUE_DIGITS + 1

PAIRS = [high + low for high in ALPHABET for low in ALPHABET]
PAIRS_AS_BYTES = list(map(str.encode, PAIRS))
PAIR_VALUES = {pair: value for value, pair in enumerate(PAIRS)}
DIGIT_VALUES = {digit: value for value, digit in enumerate(ALPHABET)}
PAIR_BASE = 62**2
QUAD_BASE = 62**4
# All but the last pair; neighbours share it.
STEM_CHARACTERS = UID_CHARACTERS - 2
# Stems remembered for one queue, 0.1 MB.
STEMS_MAX = 512
# Queues whose stems are remembered.
MAKERS_REMEMBERED_MAX = 1_024
STEMS_QUEUES_MAX = 256
# Queues whose prefix is remembered, 3 MB.
PREFIXES_MAX = 16_384


@lru_cache(maxsize=PREFIXES_MAX)
def prefix(queue_id: int) -> str:
    """Return the beginning of all uids of one queue."""
    assert 0 <= queue_id <= QUEUE_ID_MAX
    rest, low = divmod(queue_id, PAIR_BASE)
    rest, middle = divmod(rest, PAIR_BASE)
    top, high = divmod(rest, PAIR_BASE)
    return f"{ALPHABET[top]}{PAIRS[high]}{PAIRS[middle]}{PAIRS[low]}{SEPARATOR}"


def uid_of(queue_id: int, number: int) -> str:
    """Return the uid of one number; a UidMaker is faster for several of one queue."""
    # Fast for the first thousands of a queue, which are the most frequent.
    if 0 <= number < PAIR_BASE:
        return f"{prefix(queue_id)}000000{PAIRS[number]}"
    high, low = divmod(number, QUAD_BASE)
    head = f"{prefix(queue_id)}{PAIRS[high // PAIR_BASE]}{PAIRS[high % PAIR_BASE]}"
    return f"{head}{PAIRS[low // PAIR_BASE]}{PAIRS[low % PAIR_BASE]}"


class UidMaker:
    """Makes the uids of one queue."""

    __slots__ = ("_block", "_head", "prefix")

    def __init__(self, queue_id: int) -> None:
        self.prefix = prefix(queue_id)
        # The upper four digits of the last number; at first a value that no number has.
        self._block = NUMBER_MAX
        # The beginning of uids with these digits.
        self._head = ""

    def uid(self, number: int) -> str:
        """Return the uid of one number."""
        block = number // QUAD_BASE
        if block != self._block:
            self._turn_to(block)
        return f"{self._head}{PAIRS[number // PAIR_BASE % PAIR_BASE]}{PAIRS[number % PAIR_BASE]}"

    def uids(self, numbers: Sequence[int]) -> list[str]:
        """Return the uids of many numbers; consecutive ones are cheapest."""
        if len(numbers) == 1:  # as `uid` does it: most publishes and fetches are of one message
            number = numbers[0]
            block = number // QUAD_BASE
            if block != self._block:
                self._turn_to(block)
            return [f"{self._head}{PAIRS[number // PAIR_BASE % PAIR_BASE]}{PAIRS[number % PAIR_BASE]}"]
        if len(numbers) < 4:
            return [self.uid(number) for number in numbers]
        if is_run(numbers):
            return self._uids_of_run(numbers[0], numbers[-1] + 1)
        block = numbers[0] // QUAD_BASE
        start = block * QUAD_BASE
        if min(numbers) < start or max(numbers) >= start + QUAD_BASE:
            return [self.uid(number) for number in numbers]
        if block != self._block:
            self._turn_to(block)
        head, pairs, base = self._head, PAIRS, PAIR_BASE
        return [f"{head}{pairs[(number - start) // base]}{pairs[number % base]}" for number in numbers]

    def keys_of_run(self, before: str, start: int, stop: int) -> list[bytes]:
        """Return the uids of consecutive numbers as bytes, each after the same text."""
        keys: list[bytes] = []
        while start < stop:
            low = start % PAIR_BASE
            end = min(stop, start - low + PAIR_BASE)
            stem = (before + self.uid(start)[:STEM_CHARACTERS]).encode()
            keys += [stem + pair for pair in PAIRS_AS_BYTES[low : low + end - start]]
            start = end
        return keys

    def _uids_of_run(self, start: int, stop: int) -> list[str]:
        uids: list[str] = []
        while start < stop:
            low = start % PAIR_BASE
            end = min(stop, start - low + PAIR_BASE)
            stem = self.uid(start)[:STEM_CHARACTERS]
            uids += [stem + pair for pair in PAIRS[low : low + end - start]]
            start = end
        return uids

    def _turn_to(self, block: int) -> None:
        assert 0 <= block <= NUMBER_MAX // QUAD_BASE
        self._block = block
        self._head = f"{self.prefix}{PAIRS[block // PAIR_BASE]}{PAIRS[block % PAIR_BASE]}"


@lru_cache(maxsize=MAKERS_REMEMBERED_MAX)
def maker_of(queue_id: int) -> UidMaker:
    """Return the maker of a queue's uids; only some are remembered, because an idle queue is to be small."""
    return UidMaker(queue_id)


def parse(uid: str) -> tuple[int, int] | None:
    """Return queue id and number, or None if the uid does not have the form of ours."""
    if len(uid) != UID_CHARACTERS or uid[QUEUE_DIGITS] != SEPARATOR:
        return None
    try:
        queue_id = DIGIT_VALUES[uid[0]]
        for at in (1, 3, 5):
            queue_id = queue_id * PAIR_BASE + PAIR_VALUES[uid[at : at + 2]]
        return queue_id, number_stem(uid) + PAIR_VALUES[uid[STEM_CHARACTERS:]]
    except KeyError:
        return None


def number_stem(uid: str) -> int:
    """Return the value of the digits of the number without the last two; KeyError if they are not digits."""
    value = PAIR_VALUES[uid[8:10]] * PAIR_BASE + PAIR_VALUES[uid[10:12]]
    return (value * PAIR_BASE + PAIR_VALUES[uid[12:14]]) * PAIR_BASE


class Stems(dict[str, int]):
    """The values of uids of one queue without their last two digits; a uid of another queue is a KeyError.

    It is a bounded cache of values that can be computed again.
    """

    __slots__ = ("prefix",)

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self.prefix = prefix

    def __missing__(self, stem: str) -> int:
        if stem[:PREFIX_CHARACTERS] != self.prefix:
            raise KeyError(stem)
        value = number_stem(stem)
        if len(self) >= STEMS_MAX:
            self.clear()
        self[stem] = value
        return value


@lru_cache(maxsize=STEMS_QUEUES_MAX)
def stems_of(prefix: str) -> Stems:
    """Return the stems of one queue."""
    return Stems(prefix)


def numbers(uids: Sequence[str], prefix: str) -> list[int]:
    """Return the numbers of uids, -1 for each that does not belong to the queue with this prefix."""
    stems, lows, cut = stems_of(prefix), PAIR_VALUES, STEM_CHARACTERS
    try:
        if len(uids) == 1:
            (uid,) = uids
            return [stems[uid[:cut]] + lows[uid[cut:]]]
        return [stems[uid[:cut]] + lows[uid[cut:]] for uid in uids]
    except KeyError:
        return [number_or_none(uid, stems) for uid in uids]


def number_or_none(uid: str, stems: Stems) -> int:
    """Return the number of one uid, or -1."""
    try:
        return stems[uid[:STEM_CHARACTERS]] + PAIR_VALUES[uid[STEM_CHARACTERS:]]
    except KeyError:
        return -1
