"""The client: requests (core/requests.py), the conversation without a socket (core/session.py), the waiting for answers
(caller.py for threads, aio_caller.py for a loop), and what programs use (blocking.py, aio.py, message.py).

AsyncClient is not imported here: a program without an event loop does not pay for one.
"""

from wakeq.client.blocking import DEFAULT_ADDRESS, Client
from wakeq.client.core.requests import Settled
from wakeq.client.message import Message

__all__ = ["DEFAULT_ADDRESS", "Client", "Message", "Settled"]
