"""broker: the verbs of whoever runs a broker."""
