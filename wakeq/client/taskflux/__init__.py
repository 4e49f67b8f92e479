"""The client of the TaskFlux protocol: packets and answers (requests.py), their order and addresses (call_script.py),
and the clients for threads (blocking.py) and tasks (aio.py). It works with any server of the protocol.
"""
