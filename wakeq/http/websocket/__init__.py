"""websocket: connections over WebSocket.  door.py is one connection; worker.py and monique.py are the protocols."""
