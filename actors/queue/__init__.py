"""queue: the actor of one queue.  Begin with `process.py`: its state, its mail table, its turn, its apply table.

A queue process does what the rules in `protocol/queue/` say, at the right moment.  Sessions file into its lanes, the
log collects its entries from it, and Queues (`actors/queues/`) has it apply what is committed.  The other modules are
functions over its state, named for what they do:

    fetching.py   FET and ISLP: deliveries, who waits, who sleeps     reading.py   bodies that are not in memory
    ending.py     NACK, TOUCH, timeouts, expiry, dead letters         staging.py   claims and stashes
    operating.py  what an operator does                               looking.py   PEEK, STATS, why
    state.py      to the state store and back

A process that crashes is made again by Queues; what it leaves behind is at `QueueProcess.on_failure`.
"""
