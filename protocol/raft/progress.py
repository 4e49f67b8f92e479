"""Progress: the leader's view of the log of one peer, and of the messages under way to it.  Pure.

    sent, accepted, rejected, restarted --> the next entry to send, and whether to send it now

    PROBE      it is not known where the peer's log differs: one message at a time, until one is accepted
    REPLICATE  the peer follows: messages go out without waiting, as many as the window allows
    SNAPSHOT   the peer needs entries that were removed: nothing is sent until an image has arrived there

Invariant: match < next.  `match` is the last entry on the disk of the peer (Figure 2: matchIndex, nextIndex); it never
falls.
"""

from collections import deque
from enum import Enum

import msgspec


class Window(msgspec.Struct, frozen=True):
    """The limits of one message and of all messages under way to one peer."""

    append_bytes: int = 256 << 10
    flying_bytes: int = 4 << 20
    flying_messages: int = 64


class Mode(Enum):
    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Progress:
    """The state of one peer at its leader."""

    __slots__ = (
        "_flights", "_flying_bytes", "_match_at_answer", "_sent_after", "_window", "acked_in", "allowance_bytes",
        "disk_id", "forgot", "gap_bytes", "heard_ms", "match", "mode", "moved_ms", "next", "probing", "round",
        "since_round", "snapshot_index", "stream",
    )  # fmt: skip

    def __init__(self, next_index: int, window: Window, now_ms: int, since_round: int) -> None:
        self.mode = Mode.PROBE
        self.match = 0  # last entry known to be on the peer's disk
        self.next = next_index  # first entry to be sent
        self.probing = False  # a probe is under way
        self.round = 0  # the last heartbeat round that the peer answered
        self.heard_ms = now_ms  # the last message from the peer
        self.moved_ms = now_ms  # when the peer last had all entries, or acknowledged new ones
        self.since_round = since_round  # later rounds began when the peer was already a member
        self.disk_id = 0  # from the peer's messages; 0 before the first one
        self.acked_in = 0  # the peer's incarnation when it reached `match`
        self.forgot = False  # the peer lost acknowledged entries; it does not count until it has them again
        self.stream = 0  # of the offered image; 0 while none is offered
        self.snapshot_index = 0  # the entry that the peer's image must reach
        self.gap_bytes = 0  # lacking when the peer was found far behind; closed slowly (see `Pace`); 0: not slowed down
        self.allowance_bytes = 0  # may be sent now, while `gap_bytes` is not 0
        self._window = window
        self._flights: deque[tuple[int, int]] = deque()  # (last index, bytes) of each message not answered
        self._flying_bytes = 0  # of all of them
        self._match_at_answer = 0  # `match` at the last answer to a heartbeat
        self._sent_after = 0  # the heartbeat round before the last message

    @property
    def counted_match(self) -> int:
        """`match` as it counts for a majority."""
        return 0 if self.forgot else self.match

    @property
    def counted_round(self) -> int:
        """`round` as it counts for a majority."""
        return 0 if self.forgot else self.round

    def may_send(self) -> bool:
        if self.mode is Mode.REPLICATE:
            window = self._window
            if self.gap_bytes and self.allowance_bytes <= 0:
                return False
            return len(self._flights) < window.flying_messages and self._flying_bytes < window.flying_bytes
        return self.mode is Mode.PROBE and not self.probing

    def sent(self, last_index: int, size_bytes: int, after_round: int) -> None:
        """Note a message with the entries from `next` to last_index, and the heartbeat round before it."""
        self._sent_after = after_round
        if self.mode is Mode.PROBE:
            self.probing = True
        else:
            self._flights.append((last_index, size_bytes))
            self._flying_bytes += size_bytes
            self.allowance_bytes -= size_bytes
            self.next = last_index + 1

    def accepted(self, match: int, incarnation: int) -> bool:
        """Note that the peer's log equals the leader's up to `match` and is on disk; return whether that is news."""
        # The right disk is back, or an image was installed.
        if match >= self.match:
            self.forgot = False
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
        """Note that the peer's log differs at `previous` or before; its hint is to go on with next_index.

        Return whether the peer has lost entries that it had acknowledged.
        """
        if previous <= self.match:
            # Acknowledged entries are on the peer's disk, so this is an old answer; or the peer lost its disk (R11).
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
        """Note an answer; return whether a message seems lost: one is under way, and `match` has not changed."""
        self.round = max(self.round, number)
        if number <= self._sent_after:
            return False
        self.probing = False
        is_stuck = bool(self._flights) and self.match == self._match_at_answer
        self._match_at_answer = self.match
        return is_stuck

    def probe(self, kept_after: int, last_index: int) -> None:
        """Begin again behind `match`: the peer's connection or incarnation has ended.

        If `match` is below the entries that are kept, probe at the end of the log: the rejection says where to go on,
        and whether the peer needs an image at all.
        """
        self._begin(Mode.PROBE)
        self.next = (self.match if self.match > kept_after else last_index) + 1

    def await_image(self, index: int) -> None:
        """Send nothing until the peer has an image of all entries up to `index`."""
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
