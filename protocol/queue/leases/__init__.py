"""leases: what only the leader of a queue knows, built from the ledger when it begins to lead and dropped when it ends.

Begin with `leases.py`: messages come in line, are leased, return or go.  It is composed of parts with a test each:

    audience.py      who waits with a fetch, who sleeps, who was woken
    due_moments.py   when delayed messages become due, and when messages expire
    lease_ends.py    when leases end; `staged_ends.py`: when claims and stashes do
    holders.py       which connection has which messages, for queues that release them on disconnect

The line itself is in `protocol/queue/order/`.  The queue process asks and is never told: no part calls back.
"""
