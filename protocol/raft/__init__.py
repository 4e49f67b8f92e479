"""raft: the consensus core as a pure state machine."""
