"""Service: a node as a process: limits and interpreter settings, signals, exit status.

    settings --> one node after the other --> the ready line; SIGTERM, SIGINT, SIGHUP, systemd --> exit status

It builds nothing that a message passes through.
"""

import asyncio
import contextlib
import dataclasses
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from wakeq.config.layers import reloaded
from wakeq.config.logs import log_to_stderr
from wakeq.config.settings import Settings
from wakeq.node.assembly import RestartWithNewState
from wakeq.node.node import Node
from wakeq.node.systemd import Systemd
from wakeq.protocol.errors import StorageError, WakeqError
from wakeq.protocol.wire.taskflux.dialects import DIALECTS

# After this time a disk thread asks the loop for the interpreter's lock; Python's default is 5 ms.
SWITCH_INTERVAL_S = 0.0005
# Almost nothing here forms cycles, and a full collection stalls the loop.
GC_THRESHOLDS = (100_000, 20, 100)
# Open files that are not connections: log, state, snapshots, listening sockets.
OTHER_FILES_MAX = 256
BUG_STATUS = 70
# Addresses at which a browser reaches a broker that listens on all addresses.
LOOPBACKS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}

logger = logging.getLogger("wakeq.node")


def run(settings: Settings, load: Callable[[], Settings]) -> int:
    """Run a broker until a signal ends it; return its exit status.  `load` reads the settings again on SIGHUP."""
    _set_up_process(settings)
    logging.getLogger("wakeq.runtime").addFilter(_without_traceback)
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        import uvloop

        return uvloop.run(_serve(_with_files(settings), lambda: _with_files(load())))
    except WakeqError as error:
        print(f"wakeq: {error}", file=sys.stderr)
        return error.exit_status


def _set_up_process(settings: Settings) -> None:
    log_to_stderr(settings.logging.level, settings.logging.format)
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def _with_files(settings: Settings) -> Settings:
    """Return the settings with `connections_max` lowered to what the limit of open files allows."""
    connections_max = _raise_file_limit(settings.connections_max)
    if connections_max < settings.connections_max:
        logger.warning("the limit of open files allows %d connections; raise it (ulimit -n)", connections_max)
    return dataclasses.replace(settings, connections_max=connections_max)


def _raise_file_limit(connections: int) -> int:
    """Raise the limit of open files as far as needed; return the number of connections that it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHER_FILES_MAX
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else max(1, min(connections, soft - OTHER_FILES_MAX))


def _without_traceback(record: logging.LogRecord) -> bool:
    """Log an error of a disk or a user in one line; only a bug needs its traceback."""
    if record.exc_info and isinstance(error := record.exc_info[1], WakeqError):
        record.msg, record.args, record.exc_info = "%s: %s", (record.getMessage(), error), None
    return True


async def _serve(settings: Settings, load: Callable[[], Settings]) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    systemd = Systemd(os.environ)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, number, stopping, systemd)
    while True:
        node = Node(settings)
        loop.add_signal_handler(signal.SIGHUP, _reload, node, load, systemd)
        addresses = await _start(node, stopping)
        if addresses is None:
            logger.info("shut down before the start had finished")
            return 0
        gc.freeze()
        identity = node.files.directory.identity
        doors = " ".join(f"{door}={address}" for door, address in addresses.items())
        if settings.cluster.peers is None:
            logger.info("the broker is up: %s", doors)
        else:
            logger.info("node %d of cluster %s is up: %s", identity.node_id, identity.cluster_id.hex(), doors)
        # One write: whoever waits for the first line may read no further.
        print(f"wakeq ready {doors}\ndashboard: {dashboard_url(node.settings, addresses['http'])}", flush=True)
        systemd.ready(doors)
        systemd.keep_watch(loop)
        status = await _wait_for_end(node, stopping)
        if status is not None:
            return status
        # The next node opens the same ports: clients were told these.
        settings = with_ports(node.settings, addresses)


async def _start(node: Node, stopping: asyncio.Event) -> dict[str, str] | None:
    """Start a node; return its addresses by door, or None if the program was told to shut down first."""
    starting = asyncio.ensure_future(node.start())
    told: asyncio.Future[Any] = asyncio.ensure_future(stopping.wait())
    await asyncio.wait([starting, told], return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if not starting.done():
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
    return None if starting.cancelled() else starting.result()


async def _wait_for_end(node: Node, stopping: asyncio.Event) -> int | None:
    """Wait until a node ends; return the exit status, or None if it must restart with another state."""
    assert node.failed is not None, "started"
    told: asyncio.Future[Any] = asyncio.ensure_future(stopping.wait())
    await asyncio.wait([told, node.failed], return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    failure = node.failed.result() if node.failed.done() else None
    if failure is None or isinstance(failure, RestartWithNewState):
        await node.stop()
        failure = failure or (node.failed.result() if node.failed.done() else None)
    if isinstance(failure, RestartWithNewState):
        return 0 if stopping.is_set() else None
    return 0 if failure is None else _exit_after_failure(failure)


def dashboard_url(settings: Settings, address: str) -> str:
    """Return the URL of the dashboard for a browser on this machine."""
    host, _, port = address.rpartition(":")
    scheme = "http" if settings.tls.cert_file is None else "https"
    return f"{scheme}://{LOOPBACKS.get(host, host)}:{port}/"


def with_ports(settings: Settings, addresses: Mapping[str, str]) -> Settings:
    """Return the settings with the ports that these addresses have."""
    names = {"worker": "worker_port", "http": "http_port", "taskflux": "taskflux_port"}
    names |= {f"taskflux-{dialect}": "taskflux_other_port" for dialect in DIALECTS}
    taken = {names[door]: int(address.rpartition(":")[2]) for door, address in addresses.items() if door in names}
    return dataclasses.replace(settings, **taken)  # type: ignore[arg-type]


def _on_signal(number: int, stopping: asyncio.Event, systemd: Systemd) -> None:
    """Shut down in order at the first signal, and end at once at the second."""
    if stopping.is_set():
        os._exit(128 + number)
    stopping.set()
    systemd.stopping()


def _reload(node: Node, load: Callable[[], Settings], systemd: Systemd) -> None:
    """Read settings and certificates again (SIGHUP); if anything is wrong with them, nothing changes."""
    systemd.reloading()
    try:
        settings, waiting = reloaded(node.settings, load())
        node.reload(settings)
        _set_up_process(settings)
    except WakeqError as error:
        logger.error("could not reload the settings; nothing was changed: %s", error)
    else:
        for name in waiting:
            logger.warning("%s has changed; the new value takes effect at the next start", name)
        logger.info("reloaded settings and certificates")
    systemd.tell("READY=1")


def _exit_after_failure(error: BaseException) -> int:
    """Print why the node failed and end.  Nothing is written any more: the state of a failed disk is unknown."""
    status = error.exit_status if isinstance(error, WakeqError) else BUG_STATUS
    bug = f"{type(error).__name__}: {error}; this is a bug, the log above says where"
    print(f"wakeq: {error if isinstance(error, StorageError) else bug}", file=sys.stderr, flush=True)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(status)
