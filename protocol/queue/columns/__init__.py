"""columns: the messages of one queue by number, a few machine words for each.  Begin with columns.py."""
