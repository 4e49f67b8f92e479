"""http: the HTTP port: health, metrics, the API (`api/`), the dashboard (`pages/`), WebSocket (`websocket/`).

Begin with server.py, which every request passes, and api/api.py.  `wakeq.node` builds the handlers and adds them.
"""
