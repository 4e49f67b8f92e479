"""Seconds: spans of time as clients and people give them, and as the broker counts them.

seconds, perhaps with a fraction --> ms_of --> whole milliseconds
"""

from math import ceil

# A product of binary fractions may be a hair above the milliseconds that were meant: 16.1 s are 16,100 ms.
DIGITS = 3


def ms_of(seconds: float) -> int:
    """Return a span in milliseconds; a fraction that is finer is rounded up, so that nothing ends early."""
    return seconds * 1000 if type(seconds) is int else ceil(round(seconds * 1000, DIGITS))
