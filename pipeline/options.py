"""Options of the data sources, as Spark gives them: names and strings.

options --> by known names in lower case --> numbers, truths; or BadSettings in one line
"""

from collections.abc import Mapping
from difflib import get_close_matches

from wakeq.protocol.errors import BadSettings

TRUTHS = {"true": True, "false": False}
# How alike a misspelled name and its correction are, at least.
CLOSE = 0.75
NO_ALIASES: Mapping[str, str] = {}


def known_options(
    given: Mapping[str, str],
    names: tuple[str, ...],
    *,
    source: str,
    aliases: Mapping[str, str] = NO_ALIASES,
    unnamed: tuple[str, ...] = ("path",),
) -> dict[str, str]:
    """Return the options by their names in lower case; refuse those that the source does not know.

    `unnamed` ones are accepted and not named in the refusal, because Spark adds them.
    """
    options = {aliases.get(name.lower(), name.lower()): value for name, value in given.items()}
    known = {name.lower(): name for name in names}
    for name in given:
        plain = aliases.get(name.lower(), name.lower())
        if plain in known or plain in unnamed:
            continue
        close = get_close_matches(plain, known, 1, CLOSE)
        advice = f"did you mean {known[close[0]]}?" if close else f"{source} knows {', '.join(names)}"
        raise BadSettings(f"unknown option {name}; {advice}")
    return options


def number(options: Mapping[str, str], name: str, default: int, *, least: int = 1, most: int = 2**63 - 1) -> int:
    """Return an option that is a whole number."""
    text = options.get(name.lower())
    if text is None:
        return default
    try:
        found = int(text)
    except ValueError:
        found = least - 1
    if not least <= found <= most:
        raise BadSettings(f"option {name} is {text!r}; it must be a whole number from {least} to {most}")
    return found


def truth(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return an option that is true or false."""
    text = options.get(name.lower())
    if text is None:
        return default
    found = TRUTHS.get(text.lower())
    if found is None:
        raise BadSettings(f"option {name} is {text!r}; it must be true or false")
    return found
