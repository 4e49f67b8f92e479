"""What became of a publish whose messages may have been stored before, and which of them are new.  Pure."""

from collections.abc import Sequence
from functools import lru_cache

from wakeq.protocol.log.entries import Draft, Result, Results
from wakeq.protocol.uid import UidMaker

MAKERS_REMEMBERED_MAX = 1_024


class Repeated(Sequence[int]):
    """The results of a publish that was stored before, perhaps by an earlier incarnation of the queue."""

    __slots__ = ("numbers", "queue_id")

    def __init__(self, queue_id: int, numbers: range) -> None:
        self.queue_id = queue_id
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self.numbers[index]


class Mixed(list[int]):
    """Results some of which were stored before: positions that are not new, and the queue id of each."""

    def __init__(self) -> None:
        super().__init__()
        self.repeated: dict[int, int] = {}

    def add(self, results: Results) -> None:
        """Take the results of one draft."""
        if isinstance(results, Repeated):
            self.repeated[len(self)] = results.queue_id
        self.extend(results)


def new_numbers(results: Results) -> list[int] | range:
    """Return the numbers that an entry really added."""
    if isinstance(results, range):
        return results
    if isinstance(results, Repeated):
        return []
    if isinstance(results, Mixed):
        return [n for i, n in enumerate(results) if n > 0 and i not in results.repeated]
    return [number for number in results if number > 0]


def new_drafts(results: Results, drafts: Sequence[Draft]) -> Sequence[Draft]:
    """Return the drafts that an entry really added, in the order of `new_numbers`."""
    if isinstance(results, range):
        return drafts
    if isinstance(results, Repeated):
        return []
    repeated = results.repeated if isinstance(results, Mixed) else {}
    rows = enumerate(zip(results, drafts, strict=True))
    return [draft for i, (number, draft) in rows if number > 0 and i not in repeated]


def unchanged(results: Results, drafts: int) -> list[tuple[int, int]]:
    """Return place and code of each draft that was refused, or stored before (then perhaps with fewer beside it)."""
    if isinstance(results, Repeated):
        return [(place, int(Result.REPEATED)) for place in range(drafts)]
    repeated = results.repeated if isinstance(results, Mixed) else {}
    codes = ((place, int(Result.REPEATED) if place in repeated else code) for place, code in enumerate(results))
    return [(place, code) for place, code in codes if code < 0]


def published_uids(queue_id: int, results: Results) -> list[str]:
    """Return the uid of each message that was published; "" for one that was not."""
    maker = maker_of(queue_id)
    if isinstance(results, range):
        return maker.uids(results)
    uids = [maker.uid(number) if number > 0 else "" for number in results]
    if isinstance(results, Mixed):  # some were published before, perhaps into an earlier incarnation
        for place, repeated_id in results.repeated.items():
            uids[place] = maker_of(repeated_id).uid(results[place])
    return uids


@lru_cache(maxsize=MAKERS_REMEMBERED_MAX)
def maker_of(queue_id: int) -> UidMaker:
    """Return the maker of a queue's uids; only some are remembered, because an idle queue is to be small."""
    return UidMaker(queue_id)
