"""leases: what only the leader knows of a queue: deliveries, sleepers, waiting fetches.  Begin with leases.py."""
