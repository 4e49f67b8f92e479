"""The one rule for queue names, at every door.

A name is 0 to 255 bytes, each of them 33..126 (visible ASCII, no space).  The empty name is the default
queue.  A name comes in as text, the same text goes out, or BadName is raised.  Must never put a peer's bytes
into an error text unescaped, nor remember an unbounded number of names.
"""

import re
from functools import lru_cache

from wakeq.protocol.errors import BadName

DEFAULT_QUEUE = ""
NAME_BYTES_MAX = 255
NAMES_REMEMBERED_MAX = 4096  # names whose check is remembered; at most 255 bytes each
SHOWN_CHARS_MAX = 40  # of a bad name, in the error's text

_NAME = re.compile(rf"[!-~]{{0,{NAME_BYTES_MAX}}}\Z")


@lru_cache(maxsize=NAMES_REMEMBERED_MAX)
def check_name(name: str) -> str:
    """Return the name, or raise BadName and say what is wrong with it."""
    if _NAME.match(name):
        return name
    if len(name) > NAME_BYTES_MAX:
        raise BadName(f"the queue name has {len(name)} characters, at most {NAME_BYTES_MAX} are allowed")
    at = next(place for place, char in enumerate(name) if not "!" <= char <= "~")
    raise BadName(
        f"queue name {name[:SHOWN_CHARS_MAX]!a}: character {at + 1} is not one of the bytes 33..126 "
        "(visible ASCII without the space)"
    )
