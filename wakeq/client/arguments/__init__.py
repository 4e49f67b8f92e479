"""What programs give to the clients and to tasks: spans of time and moments, models of pydantic.

spans.py turns both into seconds of the protocol; models.py writes models as JSON, and reads them.
"""
