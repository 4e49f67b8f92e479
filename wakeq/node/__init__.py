"""node: a broker as a program: node.py builds and joins everything that lives as long as it does."""
