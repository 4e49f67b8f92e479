"""The client's side: what is said (core/requests.py), the conversation without a socket (core/session.py), who waits
for it (caller.py for threads, aio_caller.py for a loop), and what people touch (blocking.py, aio.py, message.py).

AsyncClient is not loaded here: a program that needs no event loop does not pay for one.
"""

from wakeq.client.blocking import DEFAULT_ADDRESS, Client
from wakeq.client.core.requests import Settled
from wakeq.client.message import Message

__all__ = ["DEFAULT_ADDRESS", "Client", "Message", "Settled"]
