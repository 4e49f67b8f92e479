"""data: what is done with a data directory: opened, looked into, repaired, backed up, recovered."""
