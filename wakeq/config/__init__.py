"""config: the choices of an operator: settings.py declares them, layers.py reads them, rules.py compares them."""
