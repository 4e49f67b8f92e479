"""Entries: the entries of a simulated log, and the hashes that tell two logs or two states apart.

    payload --> entry (term, payload, hash of the log up to here);  state, payload --> next state

Hashes are of integers only, so that they are the same in every process.
"""

from wakeq.protocol.raft.membership import Config

Payload = int | Config
Entry = tuple[int, Payload, int]  # term, payload, chain: the hash of the log up to and including this entry

NOOP = 0


def key_of(payload: Payload) -> int:
    """Return an integer that identifies a payload."""
    if isinstance(payload, int):
        return payload
    members = tuple((member.node_id, member.disk_id, member.voter) for member in payload.members)
    return hash((members, payload.founded))


def link(chain: int, term: int, payload: Payload) -> Entry:
    """Return the entry that follows in a log with this hash."""
    return (term, payload, hash((chain, term, key_of(payload))))


def after(state: int, payload: Payload) -> int:
    """Return the state behind one more entry."""
    return hash((state, key_of(payload)))
