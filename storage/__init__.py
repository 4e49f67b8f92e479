"""The data that survives a node.  It knows files, LMDB and threads, and no actor.

    log/       the log as files, the node's metadata, and the journal behind the log
    state/     the state made from the log, in LMDB or in memory; snapshots of it

Begin with directory.py, the data directory, which holds all of it; memory_directory.py is the same without a disk.
files.py has the tools for durable files, thread.py the thread that waits for the disk.  version1.py imports the files
of the program before this one; credentials.py keeps tokens and the secret of a cluster; series_file.py what charts
show.  The actors of `actors/log/` and `actors/queues/` call this room; `wakeq/data/` opens, repairs and inspects its
files.
"""
