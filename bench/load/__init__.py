"""The generator: flow and clients of one cell, the four roles of a connection, and idle workers by thousands.

Begin with `flow.py`.  A peer's module (`bench/peers`) fills in the bytes of its protocol.
"""
