"""The worker protocol: JSON lines and frames (codec.py), what clients say (commands.py) and hear (replies.py)."""
