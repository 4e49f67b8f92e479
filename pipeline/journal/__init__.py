"""journal: the history of a broker as a table.  Begin with table.py; files.py finds the history, plan.py cuts it."""
