"""The MoniQue protocol: messages (messages.py) and tags (tags.py); what is said over WebSocket (commands.py), its bytes
(codec.py) and its order (conversation.py); ZeroMQ (transfers.py, kills.py).  Pure; see docs/protocols/monique.md."""
