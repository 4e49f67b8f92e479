"""Progress: how far one peer is, as its leader knows it, and how much may be under way to it.  Pure.

    sent, accepted, rejected, restarted --> what to send next, whether now

    PROBE      where its log parts from ours is not known: one message at a time, until one is accepted
    REPLICATE  it follows: messages go out without waiting, as many as the window takes
    SNAPSHOT   it needs what was cut off: nothing is sent until an image has arrived there

Invariant: match < next; match is what the peer has on disk (Figure 2: matchIndex, nextIndex), it never falls.
"""

from collections import deque
from enum import Enum

import msgspec


class Window(msgspec.Struct, frozen=True):
    """How much may be under way to one peer, and how much one message carries."""

    append_bytes: int = 256 << 10
    flying_bytes: int = 4 << 20
    flying_messages: int = 64


class Mode(Enum):
    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Progress:
    """See the head of this file."""

    __slots__ = (
        "_flights", "_flying_bytes", "_match_at_answer", "_sent_after", "_window", "acked_in", "allowance_bytes",
        "disk_id", "forgot", "gap_bytes", "heard_ms", "match", "mode", "moved_ms", "next", "probing", "round",
        "since_round", "snapshot_index", "stream",
    )  # fmt: skip

    def __init__(self, next_index: int, window: Window, now_ms: int, since_round: int) -> None:
        self.mode = Mode.PROBE
        self.match = 0
        self.next = next_index
        self.probing = False  # a probe is under way
        self.round = 0  # the last heartbeat round that it answered
        self.heard_ms = now_ms  # when it last said something
        self.moved_ms = now_ms  # when it last had everything, or acknowledged something new
        self.since_round = since_round  # rounds behind this one were begun when it was a member
        self.disk_id = 0  # what it says its disk is, once it has said something
        self.acked_in = 0  # its incarnation when it reached `match`
        self.forgot = False  # it lost what it had acknowledged, and counts for nothing until it shows it again
        self.stream = 0  # of the image that was offered; 0 while none is
        self.snapshot_index = 0
        self.gap_bytes = 0  # what it lacked when it was found to be far behind: that is closed at leisure; 0: it is not
        self.allowance_bytes = 0  # while it is: what may be sent now
        self._window = window
        self._flights: deque[tuple[int, int]] = deque()  # (last index, bytes) of each message not answered
        self._flying_bytes = 0
        self._match_at_answer = 0
        self._sent_after = 0

    @property
    def counted_match(self) -> int:
        """What it has, for a majority."""
        return 0 if self.forgot else self.match

    @property
    def counted_round(self) -> int:
        """What it answered, for a majority."""
        return 0 if self.forgot else self.round

    def may_send(self) -> bool:
        if self.mode is Mode.REPLICATE:
            window = self._window
            if self.gap_bytes and self.allowance_bytes <= 0:
                return False
            return len(self._flights) < window.flying_messages and self._flying_bytes < window.flying_bytes
        return self.mode is Mode.PROBE and not self.probing

    def sent(self, last_index: int, size_bytes: int, after_round: int) -> None:
        """Note a message with the entries from `next` to last_index, if any, and the heartbeat that went before it."""
        self._sent_after = after_round
        if self.mode is Mode.PROBE:
            self.probing = True
        else:
            self._flights.append((last_index, size_bytes))
            self._flying_bytes += size_bytes
            self.allowance_bytes -= size_bytes
            self.next = last_index + 1

    def accepted(self, match: int, incarnation: int) -> bool:
        """Its log is ours, on disk, up to `match`; return whether that is news."""
        if match >= self.match:
            self.forgot = False  # the right disk is there again, or an image has come
        is_news = match > self.match
        if is_news:
            self.match, self.acked_in = match, incarnation
        self.next = max(self.next, match + 1)
        if self.mode is Mode.PROBE or (self.mode is Mode.SNAPSHOT and match >= self.snapshot_index):
            self._begin(Mode.REPLICATE)
            self.next = self.match + 1
        flights = self._flights
        while flights and flights[0][0] <= match:
            self._flying_bytes -= flights.popleft()[1]
        return is_news

    def rejected(self, previous: int, next_index: int, incarnation: int) -> bool:
        """Its log parts from ours at `previous` or before; what it says suggests to go on with next_index.

        Return whether it has lost what it had acknowledged.
        """
        if previous <= self.match:
            # What is acknowledged is on disk there, so this is an old answer; or it has lost its disk (R11).
            if incarnation <= self.acked_in:
                return False
            self._begin(Mode.PROBE)
            self.next, self.probing, self.forgot = self.match + 1, True, True
            return True
        if self.mode is Mode.REPLICATE or (self.mode is Mode.PROBE and previous == self.next - 1):
            self._begin(Mode.PROBE)
            self.next = max(self.match + 1, min(next_index, previous))
        return False

    def answered_heartbeat(self, number: int) -> bool:
        """It lives.  Return whether something seems lost that was sent before this round: nothing has moved since."""
        self.round = max(self.round, number)
        if number <= self._sent_after:
            return False
        self.probing = False
        is_stuck = bool(self._flights) and self.match == self._match_at_answer
        self._match_at_answer = self.match
        return is_stuck

    def probe(self, kept_after: int, last_index: int) -> None:
        """Begin again behind what it has for certain: its connection or its life has ended.

        If nothing of the log that is kept is certain, ask at its end: the refusal will say where to go on, and
        whether an image is needed at all.
        """
        self._begin(Mode.PROBE)
        self.next = (self.match if self.match > kept_after else last_index) + 1

    def await_image(self, index: int) -> None:
        """It can go on only once it has everything up to index."""
        self._begin(Mode.SNAPSHOT)
        self.snapshot_index = index

    def offered(self, stream: int, index: int) -> None:
        self.stream, self.snapshot_index = stream, index

    def _begin(self, mode: Mode) -> None:
        self.mode = mode
        self.probing = False
        self._flights.clear()
        self._flying_bytes = 0
        self.stream = self.snapshot_index = self.gap_bytes = 0
