"""state: the state that is made from the log (store.py), in LMDB or in memory, and its snapshots."""
