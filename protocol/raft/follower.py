"""Follower: copies the leader's log, and campaigns when it hears no leader.  Pure.

    Append, Heartbeat, SnapshotOffer --> entries to write, images to fetch, the commit index, durable acknowledgements

Sections 5.2 and 5.3 of the paper, section 7 for images.  Learners and nodes of no configuration are followers too; they
never campaign.  A follower acknowledges entries that match the leader's log and are on disk, never its own last index.
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
    """Invariant: the log up to `matched` equals the log of the leader of this term."""

    def __init__(self, core: "Core") -> None:
        self.core = core
        self.matched = 0
        self.has_caught_up = False  # once the log has held all that the leader had committed
        self._owes_answer = False  # matching entries are not on disk yet, and the leader waits for the acknowledgement
        self._offer: SnapshotOffer | None = None  # whose stream is being fetched
        self._restoring: Restore | None = None  # an image being installed; until it is on disk no entry is accepted
        self.postpone()

    def postpone(self) -> None:
        """Wait again before campaigning, for a random span, so that two nodes seldom campaign at once (section 5.2)."""
        span_ms = self.core.settings.election_ms
        self.deadline_ms = self.core.now_ms + span_ms + int(span_ms * self.core.chance())

    def hurry(self) -> None:
        """Campaign at the next tick: there is no other node to wait for."""
        self.deadline_ms = self.core.now_ms

    def begin_term(self) -> None:
        """Forget `matched`: the log may not match that of the next leader."""
        self.matched = 0
        self._owes_answer = False

    @property
    def may_campaign(self) -> bool:
        """Whether this is a voter, with the disk that joined, whose log and state are whole."""
        core = self.core
        is_whole = self._restoring is None and not core.disowned and not core.is_removed
        return is_whole and core.members.may_stand(core.me.disk_id, core.commit)

    def tick(self, now_ms: int) -> None:
        """Section 5.2: campaign if no leader was heard in time."""
        if self.may_campaign and now_ms >= self.deadline_ms:
            self.core.campaign(pre=True)

    # --- the log ----------------------------------------------------------------------------------------------------

    def on_append(self, message: Append) -> Write | None:
        """AppendEntries, steps 2 to 5 of Figure 2."""
        core, log = self.core, self.core.log
        if self._restoring is not None:
            return None
        # All of these entries are committed and in the state, so they match.
        if message.last_index <= log.previous_index:
            self._acknowledge(message.last_index)
            return None
        if message.prev_index >= log.previous_index and log.term_at(message.prev_index) != message.prev_term:
            self._reject(message.prev_index)
            return None
        write = self._append_entries(message)
        self._acknowledge(message.last_index)
        core.commit_to(min(message.commit, message.last_index))
        if message.last_index >= message.commit:
            self.has_caught_up = True
        return write

    def _append_entries(self, message: Append) -> Write | None:
        """Steps 3 and 4: only a real conflict removes entries; a late or repeated message changes nothing."""
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
        """Hint where the logs may differ, so that the leader skips a whole term at a time (end of section 5.3)."""
        core, log = self.core, self.core.log
        term = log.term_at(prev_index)
        if term is None:
            hint = (log.last_index + 1, 0)
        else:
            hint = (max(log.first_of_term_at(prev_index), core.commit + 1), term)
        self._tell_leader(AppendAnswer, 0, prev_index, *hint)

    def _acknowledge(self, matched: int) -> None:
        """Acknowledge the entries that a message showed to match: now if they are on disk, otherwise later."""
        self.matched = max(self.matched, matched)
        self._owes_answer = self.matched > self.core.stable_index
        if not self._owes_answer:
            self._tell_leader(AppendAnswer, self.matched)

    def _tell_leader(self, kind: Callable[..., AnyMessage], *fields: object) -> None:
        """Send a message to the leader of this term, if it is known."""
        if self.core.leader_id is not None:
            self.core.send(kind, self.core.leader_id, *fields)

    def on_stable(self) -> None:
        """Acknowledge matching entries that have reached the disk."""
        if self._owes_answer:
            self._owes_answer = self.matched > self.core.stable_index
            self._tell_leader(AppendAnswer, min(self.matched, self.core.stable_index))

    def on_heartbeat(self, message: Heartbeat) -> None:
        """Commit only entries that are known to match: others may differ from the leader's."""
        core = self.core
        if self._restoring is None:
            core.commit_to(min(message.commit, self.matched))
        core.send(HeartbeatAnswer, message.sender, message.round)

    # --- images of the state (section 7) ----------------------------------------------------------------------------

    def on_offer(self, message: SnapshotOffer) -> Fetch | None:
        """Fetch an image only if the log does not contain its entries."""
        if self._restoring is not None or self._has_entries_of(message):
            return None
        self._offer = message
        return Fetch(message.stream, message.index)

    def _has_entries_of(self, offer: SnapshotOffer) -> bool:
        """Whether the log contains the entries of the image; then it keeps all of its own (Figure 13, step 6)."""
        core = self.core
        if offer.index > core.commit:
            if core.log.term_at(offer.index) != offer.index_term:
                return False
            core.commit_to(offer.index)
        self._acknowledge(offer.index)
        return True

    def fetched(self, stream: int) -> Restore | None:
        """Return how to install an image that has arrived, None if it is no longer needed."""
        offer = self._offer
        if offer is None or offer.stream != stream:
            return None
        self._offer = None
        if self._has_entries_of(offer):
            return None
        self._restoring = Restore(stream, offer.index, offer.index_term, offer.config)
        return self._restoring

    def fetch_failed(self, stream: int) -> None:
        if self._offer is not None and self._offer.stream == stream:
            self._offer = None
            self._tell_leader(SnapshotRefused, stream)

    def restored(self) -> None:
        """Begin behind the image: state and log on disk are those of the image (Figure 13, steps 7 and 8)."""
        assert self._restoring is not None, "nothing was to be restored"
        restore, self._restoring = self._restoring, None
        self.core.reset_log(restore)
        self.postpone()
        self._acknowledge(restore.index)
