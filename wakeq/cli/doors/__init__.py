"""doors: the verbs of the protocols beside the worker protocol."""
