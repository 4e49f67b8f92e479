"""raft: the consensus core as a pure state machine.

Begin with core.py, which every driver calls; follower.py, candidate.py and leader.py are its roles, messages.py its
input and output.  log_view.py is the outline of the log, membership.py the configurations.  progress.py, pace.py,
contact.py, quorum.py and acknowledged.py are parts of the leader.  The driver is `actors/log/raft_log.py`; the
simulation in `tests/simulation/` is another.
"""
