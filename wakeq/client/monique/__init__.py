"""The client of MoniQue over WebSocket: frames (websocket.py), what is said and heard (session.py), messages as
programs use them (posts.py), where the server is (line.py), and who waits: a thread (blocking.py) or a task (aio.py).
"""
