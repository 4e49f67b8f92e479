"""monique: the actors through which MoniQue's messages and tasks pass.  Begin with exchange.py."""
