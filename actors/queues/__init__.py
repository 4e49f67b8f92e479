"""queues: the supervisor of all queues, and the parts that it is made of.

Begin with `supervisor.py`: the actor, its mail, and what goes on when.  `apply.py` has queues apply committed entries
in the order of the log, `barrier.py` those that name several queues.  `catalog.py` knows which queues exist,
`processes.py` their processes.  `flush.py` writes to the state store.  `rebuild.py` is about queues that crash,
`skipped.py` about the entries over which they do.  `lobby.py` has the lanes of all queues; sessions file there.
`readings.py` knows which reader reads from which queues, `sampler.py` keeps the figures of queues over time.
"""
