"""queue: the rules of one queue, as pure state that entries of the log change.

Begin with ledger.py: what the log knows of a queue, alike on every node.  `columns/` holds its messages by number,
`order/` says which message is next, `leases/` is what only the leader knows.  The actor around it is `actors/queue/`.
"""
