"""The client's side: a conversation without a socket (session.py), and who waits for it (blocking.py)."""

from wakeq.client.blocking import DEFAULT_ADDRESS, Client
from wakeq.client.message import Message

__all__ = ["DEFAULT_ADDRESS", "Client", "Message"]
