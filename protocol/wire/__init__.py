"""wire: bytes <-> commands and replies, one file for each protocol.  Pure and incremental."""
