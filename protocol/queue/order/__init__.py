"""order: which ready message of a queue is next.  Begin with line.py; priority.py has the two structures."""
