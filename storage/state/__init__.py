"""The state that is made from the log, as tables of records.

Begin with store.py: a store accepts checkpoints and opens views.  lmdb_store.py is the store of a node (environment.py
opens LMDB and keeps its map from counting as memory), memory.py the one without a disk.  checkpoint.py turns changes
of queues into a checkpoint, and records into queues again.  snapshot.py writes a view into one file, images.py moves
such a file between nodes.  The actors that call this room are `actors/queues/` and `actors/snapshots.py`.
"""
