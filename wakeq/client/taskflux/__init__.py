"""The client of the TaskFlux protocol: what is said and heard (requests.py), in which order and where (course.py), and
who waits for it: a thread (blocking.py) or a task (aio.py).  It works with any server of the protocol.
"""
