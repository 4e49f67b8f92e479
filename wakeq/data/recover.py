"""Recovery: lets one node of a cluster continue alone after the majority is lost for good.

    data directory, not in use --> an entry in its log that says so --> the node leads by itself at its next start

Data that only the lost nodes had is lost with them, and nothing here can tell which.
"""

from pathlib import Path

from wakeq.data.opening import open_all
from wakeq.protocol.log.entries import Members
from wakeq.protocol.log.records import encode_entry
from wakeq.protocol.raft.membership import Config, Member
from wakeq.storage.state.checkpoint import load_members


def recover_alone(data_dir: Path) -> str:
    """Make the node of a data directory its cluster's only member; return what was done."""
    opened = open_all(data_dir, upgrade=False)
    try:
        log, metadata = opened.log, opened.metadata
        node, term = opened.directory.identity.node_id, max(metadata.state.term, log.last_term) + 1
        metadata.save(term=term)
        with opened.store.read() as view:
            configs = load_members(view)
        # Without an address in the state store, the other nodes use the one in their settings.
        member = configs[-1][1].member(node) if configs else None
        address = "" if member is None else member.address
        alone = Config((Member(node, metadata.state.disk_id, address=address),), founded=True)
        log.append_many(log.last_index + 1, term, [encode_entry(Members(alone), opened.store.applied().clock_ms)])
        batch = log.take_buffer()
        assert batch is not None, "it holds the entry that was just appended"
        log.write(batch)
        return (
            f"node {node} is now the only member of its cluster, with every entry up to {log.last_index - 1}; start it "
            "with the same --node and --peers, and never start the other nodes with their old data"
        )
    finally:
        opened.close()
