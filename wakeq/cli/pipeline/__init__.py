"""pipeline: the commands of the data pipeline."""
