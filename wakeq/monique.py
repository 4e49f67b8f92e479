"""wakeq.monique: MoniQue over WebSocket, for programs: the clients, and messages as programs make and read them.

from wakeq.monique import MoniqueClient
"""

from wakeq.client.monique.aio import AsyncMoniqueClient
from wakeq.client.monique.blocking import MoniqueClient
from wakeq.client.monique.posts import Post, error_of, make, read_post, result_of
from wakeq.protocol.wire.monique.errors import ErrorCode
from wakeq.protocol.wire.monique.messages import Message

__all__ = [
    "AsyncMoniqueClient",
    "ErrorCode",
    "Message",
    "MoniqueClient",
    "Post",
    "error_of",
    "make",
    "read_post",
    "result_of",
]
