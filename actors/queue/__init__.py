"""queue: the actor of one queue.  Begin with `process.py`: its state, its mail table, its turn, its apply table.

A queue process does what the rules in `protocol/queue/` say, at the right moment.  Sessions file into its lanes, the
log collects its entries from it, and Queues (`actors/queues/`) has it apply what is committed.  The other modules are
functions over its state, named for what they do:

    fetching.py       FET: deliveries                       waiting.py     who waits, who sleeps, the alarm
    acknowledging.py  ACK: marks, entries                   ending.py      NACK, TOUCH, timeouts, expiry, dead letters
    outgoing.py       entries for the log                   answering.py   answers and notes that need more than a slot
    reading.py        bodies that are not in memory         staging.py     claims and stashes
    looking.py        PEEK, STATS, why                      operating.py   what an operator does
    incarnations.py   CREATE, UPDATE, PURGE, DROP           leading.py     this node leads, or no longer
    crashing.py       last words of a process that fails    state.py       to the state store and back

Words are in docs/glossary.md.  A process that crashes is made again by Queues (`actors/queues/rebuild.py`).
"""
