"""The client of MoniQue over WebSocket: frames (websocket.py), what is said and heard (session.py), messages as
programs use them (posts.py), and who waits for them: a thread (blocking.py) or a task (aio.py).
"""
