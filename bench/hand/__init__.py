"""Whole nodes driven by hand: on an event loop without sockets, optionally with clocks that stand still.

    clock.py   the clocks of this process, which move only by command
    loop.py    an event loop whose connections are in memory
    node.py    a real `Node` on that loop: the one place that knows how the product is made and reached

Begin with `node.py`.  The tour (`bench/tour`) and `bench/counting/rounds.py` are made with it.
"""
