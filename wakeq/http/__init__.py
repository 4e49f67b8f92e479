"""http: what is served over HTTP: metrics, health, the API (`api/`), the dashboard, WebSocket (`websocket/`)."""
