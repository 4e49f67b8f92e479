"""The one rule for queue names, for all protocols.

A name is 0 to 255 bytes, each of them 33..126 (visible ASCII, no space). The empty name is the default queue. A name is
returned unchanged, or BadName is raised. An error text must never contain a peer's bytes unescaped.
"""

from functools import lru_cache

from wakeq.protocol.errors import BadName

DEFAULT_QUEUE = ""
NAME_BYTES_MAX = 255
# Appended to the name of a queue, the default name of its dead-letter queue.
DEAD_SUFFIX = ".dead"
# How much of a bad name an error shows.
SHOWN_CHARS_MAX = 40
# How many good names are remembered: every command names a queue, and most of them one of a few.
GOOD_NAMES_MAX = 4_096


@lru_cache(maxsize=GOOD_NAMES_MAX)
def check_name(name: str) -> str:
    """Return the name, or raise BadName and say what is wrong with it."""
    if len(name) <= NAME_BYTES_MAX and name.isascii() and name.isprintable() and " " not in name:
        return name
    if len(name) > NAME_BYTES_MAX:
        raise BadName(f"the queue name has {len(name)} characters, at most {NAME_BYTES_MAX} are allowed")
    at = next(place for place, char in enumerate(name) if not "!" <= char <= "~")
    raise BadName(
        f"queue name {name[:SHOWN_CHARS_MAX]!a}: character {at + 1} is not one of the bytes 33..126 "
        "(visible ASCII without the space)"
    )
