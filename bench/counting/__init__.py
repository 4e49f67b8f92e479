"""The cost of a command: calls by file, the server's functions by their time, a life without sockets.

`python -m bench calls`, `... profile` and `... rounds` begin here.  The calls of a lone command are counted by the tour
(`bench/tour`).
"""
