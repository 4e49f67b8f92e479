"""QueueSight: what can be seen of one queue without changing it.

    Peek, Stats, Scan, Why --> ledger, leases, bodies --> rows, figures, a page, causes

Bodies that are not in memory are read for it.  It never hands out, and never lets a look cost more than its bound.
"""

from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import Any

from wakeq.actors.mail import Asker, Peek, Refusal, Stats
from wakeq.actors.queue.deliveries import ANSWER_BYTES_MAX
from wakeq.actors.queue.operations import QueueOperations
from wakeq.actors.sessions.operator_mail import Page, Scan, Why
from wakeq.protocol.queue.bodies import Found
from wakeq.protocol.queue.view import Gauges, figures_of, gauges_of, numbers_in, oldest_ready, row_of
from wakeq.protocol.queue.why import absence_of, causes_of

SCAN_COUNT_MAX = 1_000


class QueueSight(QueueOperations):
    """See the head of this file."""

    _oldest = (0, 0, 0)  # incarnation, number, since when: of the oldest message that is ready, as seen last

    def _may_be_seen(self, asker: Asker) -> bool:
        """Answer, and return False, if there is nothing to see here now."""
        refusal = self._refusal()
        if refusal is None and not self.exists:
            refusal = Refusal("Q_NOT_FOUND", f"queue {self.name} does not exist")
        if refusal is not None:
            asker.tell(refusal)
        return refusal is None

    # --- messages --------------------------------------------------------------------------------------------------

    def on_peek(self, message: Peek) -> None:
        if not self._may_be_seen(message.asker):
            return
        numbers = self._within_bound(numbers_in(self.ledger, self.leases, message.state, message.count, self._now_ms()))
        self._with_found(numbers, message.asker, partial(self._show_peek, message.asker, numbers))

    def _show_peek(self, asker: Asker, numbers: list[int], found: Found) -> None:
        asker.tell([row for _, row in self._rows_of(numbers, found)])

    def _rows_of(self, numbers: list[int], found: Found) -> list[tuple[int, dict[str, Any]]]:
        now_ms = self._now_ms()
        rows = []
        for number, uid in zip(numbers, self._uids_of(numbers), strict=True):
            if self.ledger.lives(number):
                row = row_of(self.ledger, self.leases, found[number], number, now_ms)
                rows.append((number, {"uid": uid} | row))
        return rows

    def on_scan(self, message: Scan) -> None:
        if not self._may_be_seen(message.asker):
            return
        count = min(message.count, SCAN_COUNT_MAX)
        numbers = self._within_bound(
            list(islice(self._numbers_behind(message.after, leased_only=message.leased_only), count))
        )
        self._with_found(numbers, message.asker, partial(self._show_page, message.asker, numbers))

    def _within_bound(self, numbers: list[int]) -> list[int]:
        """Return as many of the first ones as one answer may hold; one message is always in it."""
        return numbers[: max(1, self.ledger.count_within(numbers, ANSWER_BYTES_MAX))]

    def _numbers_behind(self, after: int, *, leased_only: bool) -> Iterable[int]:
        if not leased_only:
            return self.ledger.living_numbers(after)
        assert self.leases is not None, "asked before"
        return sorted(number for number in self.leases.held if number > after)

    def _show_page(self, asker: Asker, numbers: list[int], found: Found) -> None:
        rows = [row | {"number": number} for number, row in self._rows_of(numbers, found)]
        asker.tell(Page(rows, numbers[-1] if numbers else 0, self.ledger.next_number - 1))

    def on_why(self, message: Why) -> None:
        if not self._may_be_seen(message.asker):
            return
        assert self.leases is not None, "asked before"
        number = self._number_of(message.uid)
        subscribers = self.runtime.groups.count(("subscribers", self.name))
        absence = absence_of(self.ledger, message.uid, number)
        if absence is None:
            causes = causes_of(self.ledger, self.leases, number, self._now_ms(), subscribers)
        else:
            causes = [absence]
        message.asker.tell({"queue": self.name, "uid": message.uid, "causes": causes})

    # --- figures ---------------------------------------------------------------------------------------------------

    def on_stats(self, message: Stats) -> None:
        asker = message.asker
        refusal = None if asker.process is self._supervisor else self._services.refusal()  # a listing was asked before
        if refusal is None and not self.exists:
            refusal = Refusal("Q_NOT_FOUND", f"queue {self.name} does not exist")
        if refusal is not None:
            asker.tell(refusal)
        else:
            asker.tell(self._gauges() if message.brief else self._figures())

    def _figures(self) -> dict[str, Any]:
        figures = figures_of(self.ledger, self.leases, self._now_ms())
        more = {"wakes_per_delivery": self._wakes_per_delivery(), "created_ms": self.created_ms}
        return figures | self._about() | more

    def _wakes_per_delivery(self) -> float:
        """Compare like with like: both are counted since this node leads, where `delivered` outlives a restart."""
        wakes, sequence = self._counted_from
        handed_out = 0 if self.leases is None else self.leases.sequence - sequence
        return round((self.wakes - wakes) / handed_out, 3) if handed_out else 0.0

    def _gauges(self) -> Gauges:
        return gauges_of(self.ledger, self.leases, self._now_ms(), **self._about())

    def _about(self) -> dict[str, int]:
        """Return the figures that only the process knows."""
        return {
            "subscribers": self.runtime.groups.count(("subscribers", self.name)),
            "wakes": self.wakes,
            "paused_until_ms": self._paused_until_ms(),
            "oldest_ready_ms": self._oldest_ready_ms(),
        }

    def _paused_until_ms(self) -> int:
        """Return until when nothing is handed out, 0 if that is over."""
        until_ms = self.ledger.paused_until_ms
        return until_ms if until_ms > self._now_ms() else 0

    def _oldest_ready_ms(self) -> int:
        """Return since when the oldest ready message could be handed out; 0 if there is none, or it is being read.

        Its moment of publication stands beside its body; what was read once is remembered.
        """
        leases = self.leases
        number = oldest_ready(self.ledger, leases, self._now_ms()) if leases is not None else 0
        if not number:
            return 0
        if self._oldest[:2] == (self.ledger.id, number):
            return self._oldest[2]
        self._with_found([number], None, partial(self._note_oldest, number))
        return self._oldest[2] if self._oldest[:2] == (self.ledger.id, number) else 0

    def _note_oldest(self, number: int, found: Found) -> None:
        if self.ledger.lives(number):
            _, published_ms = found[number]
            self._oldest = self.ledger.id, number, max(published_ms, self.ledger.due_of(number))
