"""api: the HTTP API under /api/v1.  Begin with api.py; each file of routes is named after its subject."""
