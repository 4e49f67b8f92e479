"""The commands that run, watch and keep a broker.

Begin with serve.py: the settings from flags, the node, and the checks of a machine (`config`, `doctor`, `alive`).
cluster.py operates several nodes, tokens.py keeps the tokens, data.py the data directories and backups; top.py watches
a broker and bench.py measures one.  `wakeq.node` and `wakeq.data` do the work.
"""
