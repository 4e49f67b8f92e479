"""The tour: which functions a command passes through, from the bytes that come to the bytes that are written.

    ways.py       the kinds of commands, and how one of each is sent to a node that has nothing else to do
    recorder.py   sees the calls of Python's functions while that happens
    pages.py      makes pages of the recording, and judges whether a way has become longer
    __main__.py   `python -m bench.tour`: writes docs/tour, or checks it

It stands in `bench`, beside what else is counted and timed, and not in `docs`: what it drives is the node by hand
(`bench/hand`) that the figures without sockets are made with.  Begin with `ways.py`.
"""
