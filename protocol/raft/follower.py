"""Follower: takes the leader's log, and stands for election when it hears no leader.  Pure.

    Append, Heartbeat, SnapshotOffer --> what to write or fetch, what is committed, acknowledgements once durable

Sections 5.2 and 5.3 of the paper, section 7 for images.  Learners and nodes of no configuration are followers too;
they never stand.  It acknowledges what matched the leader's log and is on disk, never its own last index.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from wakeq.protocol.raft.messages import (
    AnyMessage,
    Append,
    AppendAnswer,
    Fetch,
    Heartbeat,
    HeartbeatAnswer,
    Restore,
    SnapshotOffer,
    SnapshotRefused,
    Write,
)

if TYPE_CHECKING:
    from wakeq.protocol.raft.core import Core


class Follower:
    """See the head of this file.  Invariant: the log up to `matched` is that of the leader of this term."""

    def __init__(self, core: "Core") -> None:
        self.core = core
        self.matched = 0
        self._owes = False  # what matched is not on disk yet, and the leader waits to hear of it
        self._offer: SnapshotOffer | None = None  # whose stream is being fetched
        self._restoring: Restore | None = None  # until that is on disk, state and log belong to nobody
        self.postpone()

    def postpone(self) -> None:
        """Begin to wait anew, for a span that chance draws, so that two seldom stand at once (section 5.2)."""
        span_ms = self.core.settings.election_ms
        self.deadline_ms = self.core.now_ms + span_ms + int(span_ms * self.core.chance())

    def hurry(self) -> None:
        """Stand at the next tick: there is nobody to wait for."""
        self.deadline_ms = self.core.now_ms

    def begin_term(self) -> None:
        """What matched the log of the former leader may not match the next one's."""
        self.matched = 0
        self._owes = False

    @property
    def may_campaign(self) -> bool:
        """A voter, with the disk that joined, whose log and state are whole."""
        core = self.core
        is_whole = self._restoring is None and not core.disowned and not core.is_removed
        return is_whole and core.members.may_stand(core.me.disk_id, core.commit)

    def tick(self, now_ms: int) -> None:
        """Section 5.2: who hears no leader stands for election."""
        if self.may_campaign and now_ms >= self.deadline_ms:
            self.core.campaign(pre=True)

    # --- the log ----------------------------------------------------------------------------------------------------

    def on_append(self, message: Append) -> Write | None:
        """AppendEntries, steps 2 to 5 of Figure 2."""
        core, log = self.core, self.core.log
        if self._restoring is not None:
            return None
        if message.last_index <= log.previous_index:  # all of it is committed and in the state: the same as there
            self._acknowledge(message.last_index)
            return None
        if message.prev_index >= log.previous_index and log.term_at(message.prev_index) != message.prev_term:
            self._reject(message.prev_index)
            return None
        write = self._take_entries(message)
        self._acknowledge(message.last_index)
        core.commit_to(min(message.commit, message.last_index))
        return write

    def _take_entries(self, message: Append) -> Write | None:
        """Steps 3 and 4: only a real conflict takes entries back; a late or repeated message changes nothing."""
        core, log = self.core, self.core.log
        first = max(message.prev_index, log.previous_index) + 1
        conflict = log.first_conflict(first, message.last_index, message.runs)
        if conflict is not None:
            core.truncate_from(conflict)
        if message.last_index <= log.last_index:
            return None
        first = log.last_index + 1
        log.extend(first, message.last_index, message.runs, message.size_bytes)
        for index, config in message.configs:
            if index >= first:
                core.members.append(index, config)
        return Write(conflict or 0, first, message.last_index)

    def _reject(self, prev_index: int) -> None:
        """Say where the logs may part, so that the leader skips a whole term at a time (end of section 5.3)."""
        core, log = self.core, self.core.log
        term = log.term_at(prev_index)
        if term is None:
            hint = (log.last_index + 1, 0)
        else:
            hint = (max(log.first_of_term_at(prev_index), core.commit + 1), term)
        self._tell_leader(AppendAnswer, 0, prev_index, *hint)

    def _acknowledge(self, matched: int) -> None:
        """Answer for what this message showed to match: now if it is on disk, else when it is."""
        self.matched = max(self.matched, matched)
        self._owes = self.matched > self.core.stable_index
        if not self._owes:
            self._tell_leader(AppendAnswer, self.matched)

    def _tell_leader(self, kind: Callable[..., AnyMessage], *fields: object) -> None:
        """Answer the leader of this term; if none is known any more, there is nobody to tell."""
        if self.core.leader_id is not None:
            self.core.send(kind, self.core.leader_id, *fields)

    def on_stable(self) -> None:
        """More is on disk: acknowledge of it what matched."""
        if self._owes:
            self._owes = self.matched > self.core.stable_index
            self._tell_leader(AppendAnswer, min(self.matched, self.core.stable_index))

    def on_heartbeat(self, message: Heartbeat) -> None:
        """Commit no more than what is known to match: the rest may not be what the leader means."""
        core = self.core
        if self._restoring is None:
            core.commit_to(min(message.commit, self.matched))
        core.send(HeartbeatAnswer, message.sender, message.round)

    # --- images of the state (section 7) ----------------------------------------------------------------------------

    def on_offer(self, message: SnapshotOffer) -> Fetch | None:
        """Take an image only if the log cannot get there by itself."""
        if self._restoring is not None or self._has(message):
            return None
        self._offer = message
        return Fetch(message.stream, message.index)

    def _has(self, offer: SnapshotOffer) -> bool:
        """Whether the log contains what the image does; then it keeps all that it has (Figure 13, step 6)."""
        core = self.core
        if offer.index > core.commit:
            if core.log.term_at(offer.index) != offer.index_term:
                return False
            core.commit_to(offer.index)
        self._acknowledge(offer.index)
        return True

    def fetched(self, stream: int) -> Restore | None:
        """The image has come; by now it may be of no use any more."""
        offer = self._offer
        if offer is None or offer.stream != stream:
            return None
        self._offer = None
        if self._has(offer):
            return None
        self._restoring = Restore(stream, offer.index, offer.index_term, offer.config)
        return self._restoring

    def fetch_failed(self, stream: int) -> None:
        if self._offer is not None and self._offer.stream == stream:
            self._offer = None
            self._tell_leader(SnapshotRefused, stream)

    def restored(self) -> None:
        """State and log are those of the image, on disk (Figure 13, steps 7 and 8)."""
        assert self._restoring is not None, "nothing was to be restored"
        restore, self._restoring = self._restoring, None
        self.core.reset_log(restore)
        self.postpone()
        self._acknowledge(restore.index)
