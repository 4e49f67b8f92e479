"""Rules: checks of settings that are valid alone but not together.

Settings --> nothing, or BadSettings that names both settings and what to change
"""

from wakeq.config.monique import ANSWERS_QUEUE
from wakeq.config.settings import Settings
from wakeq.protocol.access import is_this_machine
from wakeq.protocol.errors import BadField, BadName, BadSettings
from wakeq.protocol.names import check_name
from wakeq.protocol.wire.peer.frames import split_address

# Hosts that stand for all addresses of a machine.
EVERYWHERE = {"0.0.0.0", "::"}


def check_together(settings: Settings) -> None:
    """Raise BadSettings for the first broken rule."""
    queue = settings.queue
    low, high = queue.priority_min, queue.priority_max
    if low is not None and high is not None and low > high:
        raise BadSettings("queue.priority_min is above queue.priority_max; swap them")
    if queue.structure == "QA" and (low is None or high is None):
        raise BadSettings("queue.structure QA needs a range; set queue.priority_min and queue.priority_max")
    if queue.retry.base > queue.retry.max:
        raise BadSettings("queue.retry.base is above queue.retry.max; make the first pause shorter than the longest")
    _check_ports(settings)
    _check_routes(settings)
    _check_worker_address(settings)
    _check_safety(settings)


def _check_safety(settings: Settings) -> None:
    """A port that other machines reach needs tokens and TLS, unless --insecure says otherwise."""
    tls = settings.tls
    if (tls.cert_file is None) != (tls.key_file is None):
        raise BadSettings("tls.cert_file and tls.key_file belong together; set both or none")
    if tls.peer_ca_file is not None and tls.cert_file is None:
        raise BadSettings("tls.peer_ca_file needs a certificate of this node; set tls.cert_file and tls.key_file")
    _check_peers(settings)
    if settings.insecure:
        return
    if is_this_machine(settings.host):
        return
    missing = [] if settings.auth.required else ["requires no tokens (auth.required)"]
    missing += [] if tls.cert_file is not None else ["uses no TLS (tls.cert_file, tls.key_file)"]
    if missing:
        raise BadSettings(
            f"other machines reach host {settings.host}, but the broker {' and '.join(missing)}; "
            "set that, or pass --insecure if something else protects the port"
        )


def _check_ports(settings: Settings) -> None:
    """Every door needs a port of its own."""
    taken: dict[int, str] = {}
    for name in ("worker_port", "http_port", "taskflux_port", "taskflux_other_port"):
        port = getattr(settings, name)
        if port and port in taken:
            raise BadSettings(f"{taken[port]} and {name} are both {port}; change one of them")
        taken[port] = name
    peers, node = _peers(settings), settings.cluster.node
    host, port = peers[node] if node is not None and node < len(peers) else ("", 0)
    if port and port in taken and (host == settings.host or {host, settings.host} & EVERYWHERE):
        raise BadSettings(
            f"{taken[port]} and this node's own port in cluster.peers are both {port}; change one of them"
        )


def _peers(settings: Settings) -> list[tuple[str, int]]:
    """Return host and port of each node; an invalid address, which the cluster plan refuses, has port 0."""
    parts = [address.strip().rpartition(":") for address in (settings.cluster.peers or "").split(",")]
    return [(host.strip("[]"), int(port) if port.isdecimal() else 0) for host, _, port in parts]


def _check_routes(settings: Settings) -> None:
    """MoniQue's routes need valid queue names, and another queue than that of its answers."""
    queues = (settings.monique.routes or {}).values()
    for name in queues:
        try:
            check_name(name)
        except BadName as error:
            raise BadSettings(f"monique.routes must name queues: {error}") from None
    if ANSWERS_QUEUE in queues:
        raise BadSettings(f"monique.routes stores tasks on {ANSWERS_QUEUE}, which is for answers; name another queue")


def _check_worker_address(settings: Settings) -> None:
    """The other nodes would refuse a node whose worker address is invalid."""
    address = settings.cluster.worker_address
    if address is not None:
        try:
            split_address(address)
        except BadField as error:
            raise BadSettings(f"cluster.worker_address: {error}") from None


def _check_peers(settings: Settings) -> None:
    """Nodes must prove their identity, with TLS or a secret, if clients need tokens or the nodes are apart."""
    cluster = settings.cluster
    if cluster.peers is None or settings.tls.peer_ca_file is not None:
        return
    are_here = all(is_this_machine(host) for host, _ in _peers(settings) if host)
    if not are_here and not settings.insecure:
        raise BadSettings(
            "the nodes in cluster.peers are on several machines and use no TLS (tls.peer_ca_file); set that, or pass "
            "--insecure if their network is private, and set cluster.secret_file"
        )
    if cluster.secret_file is None and (settings.auth.required or not are_here):
        why = "requires tokens of clients" if settings.auth.required else "has nodes on several machines"
        raise BadSettings(
            f"the cluster {why}, but its nodes do not authenticate each other; set tls.peer_ca_file, or set "
            "cluster.secret_file to a file that is the same on every node: `wakeq cluster secret --out FILE` makes one"
        )
