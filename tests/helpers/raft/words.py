"""The words of a scene of consensus cores: one line for a message, a few words for the members of a cluster.

message, Config --> text
"""

from typing import Any

import msgspec

from wakeq.protocol.raft.membership import Config
from wakeq.protocol.raft.messages import Message

HEADER = len(msgspec.structs.fields(Message))


def vote_of(word: str | None) -> int | None:
    return None if word in (None, "none") else int(word)


def describe(message: Any) -> str:
    """One line for a message: only what differs from nothing."""
    fields = msgspec.structs.asdict(message)
    parts = [f"{message.sender} -> {message.receiver} {type(message).__name__} term {message.term}"]
    for name in list(fields)[HEADER:]:
        value = fields[name]
        if name == "acknowledged":  # the same in nearly every message
            continue
        if value in (None, False, 0, ()) and name not in ("commit", "match", "granted"):
            continue
        if isinstance(value, Config):
            value = describe_config(value)
        elif name == "configs":
            value = ", ".join(f"{index}: {describe_config(config)}" for index, config in value)
        elif name == "runs":
            value = ", ".join(f"{first}: term {term}" for first, term in value)
            name, value = "entries", f"({value})"
        parts.append(name if value is True else f"{name} {value}")
    return " ".join(parts)


def describe_config(config: Config) -> str:
    """Voters bare, learners in brackets, unknown disks with a question mark."""
    words = [
        f"{m.node_id}{'' if m.disk_id else '?'}" if m.voter else f"[{m.node_id}{'' if m.disk_id else '?'}]"
        for m in config.members
    ]
    return f"members {' '.join(words)}{'' if config.founded else ', not founded'}"
