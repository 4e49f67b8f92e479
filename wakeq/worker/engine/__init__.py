"""The engine: the loop between the broker and the handlers of a worker.

Begin with engine.py, which connects the parts with the client, the clock and the pools, on a thread that
worker/engine_thread.py starts. fetch_planner.py decides what to ask the broker for, leases.py knows which messages are
held and which leases are due, outcome_reporter.py reports how the handlers ended. No handler runs here.
"""
