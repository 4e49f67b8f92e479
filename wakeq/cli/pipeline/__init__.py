"""pipeline: the verbs of the data pipeline."""
