"""The consensus core: who leads, which index is next, and what is committed.  Pure.

    campaign, propose, stable --> state to save, indexes to give, entries that are committed

A cluster of one takes the same steps as a larger one: its term and vote are saved before it leads, its first entry
is a no-op of its own term, and an entry counts only once it is on its own disk.  Knows no file, clock or socket.
"""

import msgspec


class HardState(msgspec.Struct, frozen=True):
    """What must be on disk before anything that rests on it leaves this node."""

    term: int
    vote: int | None


class Core:
    """One voter's view.  Invariant: commit <= last_index; an entry is committed only in the term that counted it."""

    def __init__(self, node_id: int, state: HardState, last_index: int, last_term: int, committed: int) -> None:
        self.node_id = node_id
        self.state = state
        self.last_index = last_index
        self.last_term = last_term
        self.commit = min(committed, last_index)
        self.leads = False

    @property
    def term(self) -> int:
        return self.state.term

    def campaign(self) -> HardState:
        """Stand for election in a new term; what is returned must be saved before `elected` is called."""
        self.state = HardState(self.state.term + 1, self.node_id)
        self.leads = False
        return self.state

    def elected(self) -> None:
        """The vote for itself is on disk: of one voter that is a quorum."""
        assert self.state.vote == self.node_id, "a vote for another"
        self.leads = True

    def propose(self) -> int:
        """Give the next index to an entry of this term."""
        assert self.leads, "only a leader proposes"
        self.last_index += 1
        self.last_term = self.state.term
        return self.last_index

    def stable(self, index: int, term: int) -> int:
        """Everything up to an entry is on this node's disk; return the commit index.

        Only an entry of the own term is counted: what lies before it is committed along with it.
        """
        if self.leads and term == self.state.term and index > self.commit:
            assert index <= self.last_index, "stable before proposed"
            self.commit = index
        return self.commit
