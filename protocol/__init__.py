"""What things mean.  Pure: no socket, file, clock, thread, log call or async in this room; all other rooms see it.

    queue/   the rules of one queue: its ledger, leases, order, and what its records are
    log/     the entries of the log and their bytes on disk
    raft/    consensus, as a state machine that is told of messages and time
    wire/    what clients and nodes say: commands, bytes, conversations, for each protocol

Begin with errors.py, every error with its code, and names.py and uid.py, how queues and messages are named.  catalog.py
has the policies of queues, access.py the rights of tokens, clock.py the cluster clock, series.py figures over time.
"""
