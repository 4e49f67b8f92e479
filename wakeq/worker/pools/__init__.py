"""pools: where handlers run: threads, processes, coroutines. Begin with pool.py."""
