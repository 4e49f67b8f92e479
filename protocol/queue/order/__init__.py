"""order: numbers in order: which message is next, and which moment.  Nothing here knows what a message is.

    ready_line.py  the ready messages of a queue: by key, first in, first out within a key
    fifo.py        the numbers of one key; those in a row cost nothing
    key_order.py   distinct keys, the smallest first: as a heap (H4), or as bits of a range (QA)
    calendar.py    numbers by due moment

`Leases` owns a line and calendars.  All of it is bounded work for each call; the figures are in the docstrings.
"""
