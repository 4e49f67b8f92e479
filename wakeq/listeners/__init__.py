"""listeners: socket <-> codec <-> Subscriber."""
