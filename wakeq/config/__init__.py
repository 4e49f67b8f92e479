"""config: everything that an operator may choose (settings.py), where it comes from (layers.py)."""
