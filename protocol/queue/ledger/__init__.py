"""ledger: the replicated facts of one queue, the same on every node: which messages it has, and what became of them.

Only committed entries change it.  Begin with `ledger.py`: a method of `Ledger` for each kind of entry.  It is composed
of parts that know nothing of each other:

    columns.py      what was published, by number, in `chunks.py` of 512 neighbours; a batch of like messages
                    is one buffer (`uniform.py`)
    deliveries.py   a record of each message that was ever with a worker
    publishers.py   what makes publishes idempotent: ids and sessions
    staging.py      claims of epochs, and stashed publishes

A queue process owns a ledger and applies entries to it; `wakeq inspect` and restores make one of what is stored.
Bodies are not here (`protocol/queue/bodies.py`), nor what only a leader knows (`protocol/queue/leases/`).
"""
