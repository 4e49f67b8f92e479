"""storage: what survives.  Files, LMDB and the threads that touch them; knows no actor."""
