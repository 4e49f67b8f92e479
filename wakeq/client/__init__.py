"""The client of a program that publishes, fetches or operates queues. It sees the protocol only, never the server.

Begin with blocking.py, the Client; aio.py is the same for an event loop. A call of either becomes a Request
(requests.py: arguments to a command, its reply to a result) and goes to a caller (caller.py for threads, aio_caller.py
for a loop), which owns the connection (connection.py, tls_connection.py). The callers do the waiting; what is said and
repeated on which connection is decided without waiting, by the Session (session.py) and the Route (route.py).
message.py has messages and bodies, admin.py the operating calls over HTTP, bulk.py blocks of many messages, redrive.py
the way of dead letters back. `taskflux/` and `monique/` are the clients of the other two protocols.

AsyncClient is not imported here: a program without an event loop does not pay for one.
"""

from wakeq.client.blocking import DEFAULT_ADDRESS, Client
from wakeq.client.message import Message
from wakeq.client.requests import Settled

__all__ = ["DEFAULT_ADDRESS", "Client", "Message", "Settled"]
