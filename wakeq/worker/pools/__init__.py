"""Pools: where handlers run. The engine submits jobs to a pool and gets their outcomes back through FinishedJobs.

Begin with pool.py, which says what the engine expects of each pool; threads.py, coroutines.py and processes.py are the
three kinds. call.py runs one handler with one message and makes an outcome of whatever happens.
"""
