"""The client of the TaskFlux protocol. It works with any server of the protocol.

Begin with blocking.py, the client for threads; aio.py is the same for an event loop. Both take their calls from
requests.py (arguments to packets, answers to results) and run the steps of call_script.py, which decides what is sent
where and in which order, without waiting for anything. Neither shares code with the worker protocol beyond addresses,
timeouts and sockets (client/route.py, client/connection.py).
"""
