"""HostName: the number that an orchestrator has put at the end of a host name.

    wakeq-0, wakeq-0.wakeq-nodes.shop.svc --> 0          laptop --> BadSettings that says which names have one

The number counts from 0, like the places in `cluster.peers`: the pod wakeq-0 is node 0.  It must never guess a number
for a name that has none.
"""

import re

from wakeq.protocol.errors import BadSettings

# Instead of a number: the one of this host.
AUTO = "auto"
NUMBERED = re.compile(r"[^.]*-(\d{1,5})(\..*)?")


def number_of(host_name: str) -> int:
    """Return the number at the end of the first part of a host name."""
    match = NUMBERED.fullmatch(host_name)
    if match is None:
        raise BadSettings(
            f"cluster.node is {AUTO}, but the name of this host, {host_name!r}, does not end in - and a number, as the "
            "name of a StatefulSet's pod does (wakeq-0 is node 0); set the number, or the host name"
        )
    return int(match[1])
