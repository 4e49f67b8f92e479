"""wakeq's own benchmark: the broker, a yardstick and the peers installed, measured side by side in one run.

Part of the product, not of the package: it is started with `python -m bench` from the repository, and the
broker is only ever met as a subprocess behind its socket.  Nothing here is imported by wakeq.
"""
