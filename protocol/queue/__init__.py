"""queue: the rules of one queue.  Pure: no actor, no file, no clock; numbers and entries come in, results go out.

    ledger/         which messages there are: changed by committed entries, the same on every node
    bodies.py       the bodies that are in memory
    leases/         what only the leader knows: who has which message, who waits and who sleeps
    order/          the structures below: which ready message is next, and what becomes due when
    lanes.py        what connections have filed with a queue in one round, and what it wants of the log
    orders.py       the other requests; `outcomes.py`: what is answered
    view.py         figures and states of messages; `why.py`: why a message waits; `where.py`: conditions
    timings.py      how long messages waited and were worked on, by buckets

`actors/queue/` drives all of it, conversations file into lanes.  Begin with `ledger/ledger.py`, `leases/leases.py`.
"""
