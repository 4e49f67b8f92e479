"""The client of MoniQue over WebSocket: frames (websocket.py), the conversation (session.py), messages as programs use
them (posts.py), where and when to connect (connector.py), and the clients for threads (blocking.py) and tasks (aio.py).
"""
