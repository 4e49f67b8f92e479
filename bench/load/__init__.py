"""The generator: what connections of one cell share, the four roles of a connection, and idle workers by thousands.

Begin with `flow.py`.  A peer's module (`bench/peers`) fills in the bytes of its protocol.
"""
