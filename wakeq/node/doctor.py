"""Doctor: checks a machine and its settings for what would harm a broker; changes nothing but a temporary file.

settings --> checks --> findings: good, worth knowing, or bad, each with advice
"""

import os
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from errno import EADDRINUSE
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import NamedTuple

from wakeq import __version__
from wakeq.config.monique import check_config, read_config
from wakeq.config.settings import Settings
from wakeq.net.certificate import validities
from wakeq.net.tls import server_context
from wakeq.node.cluster_plan import plan_of
from wakeq.node.security import exposure_of, may_listen, shared_key, shared_secret
from wakeq.protocol.errors import WakeqError
from wakeq.storage.credentials import TokenFile, read_secret
from wakeq.storage.directory import REUSABLE_SHARE, DataDirectory, is_empty, reserve_on
from wakeq.storage.files import free_bytes, warnings_of

GOOD, NOTE, BAD = "good", "note", "bad"
SYNCS = 25
SYNC_NOTE_S, SYNC_BAD_S = 0.01, 0.1
# Free bytes above the limit at which publishes are refused.
ROOM_NOTE_BYTES = 2 << 30
CLOCK_NOTE_S = 1.0
YEAR_MIN = 2025
# Open files that are not connections.
OTHER_FILES_MAX = 256
# Early enough to renew by hand; automatic renewal happens earlier.
CERTIFICATE_NOTE_S = 30 * 86_400
PACKAGES = ("pykka", "lmdb", "msgspec", "aiohttp", "uvloop")


class Finding(NamedTuple):
    """The result of one check; `what` is its subject."""

    level: str
    what: str
    text: str


def examine(settings: Settings) -> Iterator[Finding]:
    """Run all checks; a check that cannot run says why."""
    checks: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
        _versions, _ports, _security, _monique, _directory, _disk, _files, _memory, _clock,
    )  # fmt: skip
    for check in checks:
        try:
            yield from check(settings)
        except (OSError, WakeqError) as error:
            yield Finding(BAD, check.__name__.strip("_"), f"this check failed: {error}")


def _versions(_: Settings) -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            yield Finding(BAD, "versions", f"{package} is not installed; install wakeq again")
    yield Finding(GOOD, "versions", f"wakeq {__version__}, Python {python}, {', '.join(found)}")


def _ports(settings: Settings) -> Iterator[Finding]:
    names = ("worker_port", "http_port", "taskflux_port", "taskflux_other_port")
    wanted = [(name, settings.host, getattr(settings, name)) for name in names]
    plan = plan_of(settings)
    if plan is not None:
        wanted.append(("cluster.peers", *plan.listens_at(settings.host)))
    for name, host, port in wanted:
        if port is not None:
            yield _port(name, host, port)


def _port(name: str, host: str, port: int) -> Finding:
    """Check whether a port is free."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            hint = "is another broker running?" if error.errno == EADDRINUSE else "is this an address of this machine?"
            return Finding(NOTE, "ports", f"{name} {port} on {host}: {error.strerror}; {hint}")
    return Finding(GOOD, "ports", f"{name} {port} on {host} is free")


def _security(settings: Settings) -> Iterator[Finding]:
    """Read certificates, secrets and tokens as a start would."""
    tls = settings.tls
    if tls.cert_file is not None and tls.key_file is not None:
        server_context(tls.cert_file, tls.key_file, tls.peer_ca_file)
        if text := shared_key(settings):
            yield Finding(NOTE, "security", text)
        now = datetime.fromtimestamp(time.time(), UTC)
        yield _validity(tls.cert_file, now, any_will_do=False)
        if tls.peer_ca_file is not None:
            yield _validity(tls.peer_ca_file, now, any_will_do=True)
    if settings.cluster.peers is not None and settings.cluster.secret_file is not None:
        read_secret(settings.cluster.secret_file)
        shared = shared_secret(settings)
        good = f"the secret of the cluster is in {settings.cluster.secret_file}"
        level = GOOD if not shared else NOTE if settings.insecure else BAD
        yield Finding(level, "security", shared or good)
    exposed = [
        exposure_of(path) for path in (settings.data_dir, *([settings.tokens_path] if settings.auth.required else []))
    ]
    for text in filter(None, exposed):
        yield Finding(NOTE if settings.insecure else BAD, "security", text)
    if settings.auth.required:
        count = len(TokenFile(settings.tokens_path).read())
        if count:
            yield Finding(GOOD, "security", f"{settings.tokens_path} contains {count} tokens")
        else:
            yield Finding(NOTE, "security", f"{settings.tokens_path} contains no token; `wakeq token create` makes one")
    if settings.insecure:
        text = f"insecure: clients at {settings.host} need no TLS, or no token; protect the port in another way"
        yield Finding(NOTE, "security", text)


def _validity(file: Path, now: datetime, *, any_will_do: bool) -> Finding:
    """Check how long certificates are valid: the first one of a file must be, or any of several authorities."""
    found = validities(file)
    if not found:
        return Finding(BAD, "security", f"TLS with {file}: the file contains no certificate; choose the right file")
    needed = found if any_will_do else found[:1]
    begins, ends = min(one.begins for one in needed), min(one.ends for one in found)
    last = max(one.ends for one in needed)
    renew = "renew it; SIGHUP makes a running broker use the new one"
    if last <= now:
        level, text = BAD, f"a certificate expired on {last:%Y-%m-%d}, so no client can connect: {renew}"
    elif begins > now:
        level, text = BAD, f"a certificate is not valid before {begins:%Y-%m-%d %H:%M} UTC; is the clock right?"
    elif ends <= now:
        level, text = NOTE, f"one of several certificates expired on {ends:%Y-%m-%d}; remove it, or {renew}"
    elif (ends - now).total_seconds() < CERTIFICATE_NOTE_S:
        level, text = NOTE, f"a certificate expires on {ends:%Y-%m-%d}: {renew}"
    else:
        level, text = GOOD, f"valid until {ends:%Y-%m-%d}"
    return Finding(level, "security", f"TLS with {file}: {text}")


def _monique(settings: Settings) -> Iterator[Finding]:
    """Check the ports that MoniQue's config.json names."""
    path = settings.monique.config_file
    if path is not None:
        config = read_config(path)
        check_config(config, partial(may_listen, settings))
        for name, host, port in config.ports():
            yield _port(f"MoniQue's {name}", "0.0.0.0" if host == "*" else host, port)


def _directory(settings: Settings) -> Iterator[Finding]:
    path = settings.data_dir
    parts = (path.absolute(), *path.absolute().parents)
    file = next((part for part in parts if part.exists() and not part.is_dir()), None)
    if file is not None:
        yield Finding(BAD, "data", f"{file} is a file, not a directory: choose another path")
    elif is_empty(path):
        yield Finding(GOOD, "data", f"{path} is empty; the first start creates the data directory")
    else:
        directory = DataDirectory.read_only(path)
        pid = directory.holder_pid
        user = "" if pid is None else f", in use by the node with pid {pid or 'unknown'}"
        yield Finding(GOOD, "data", f"{path} belongs to node {directory.identity.node_id}{user}")
    for warning in warnings_of(_existing(path)):
        yield Finding(NOTE, "data", warning)


def _existing(path: Path) -> Path:
    """Return the path, or the nearest folder above it that exists."""
    path = path.absolute()
    while not path.is_dir():
        path = path.parent
    return path


def _disk(settings: Settings) -> Iterator[Finding]:
    folder = _existing(settings.data_dir)
    yield _room(folder)
    seconds = _sync_seconds(folder)
    middle, worst = median(seconds), max(seconds)
    level = BAD if middle > SYNC_BAD_S else NOTE if middle > SYNC_NOTE_S else GOOD
    advice = "" if level == GOOD else "; every publish waits for one: use a faster disk, or one with a protected cache"
    yield Finding(level, "disk", f"a sync takes {middle * 1000:.2f} ms, at worst {worst * 1000:.1f} ms{advice}")


def _room(folder: Path) -> Finding:
    """Check how much may be written before publishes are refused."""
    free, reserve = free_bytes(folder), reserve_on(folder)
    refused = f"publishes are refused below {reserve >> 20} MiB"
    # Above this bound there may be reusable room inside the state's file.
    if free < reserve - reserve // REUSABLE_SHARE:
        return Finding(BAD, "disk", f"{free >> 20} MiB free, and {refused}: make room")
    level = NOTE if free - reserve < ROOM_NOTE_BYTES else GOOD
    return Finding(level, "disk", f"{free >> 20} MiB free; {refused}")


def _sync_seconds(folder: Path) -> list[float]:
    """Write and sync a few blocks, as the log does."""
    found = []
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".wakeq-doctor-") as file:
        for _ in range(SYNCS):
            os.pwrite(file.fileno(), os.urandom(4096), 0)
            began_s = time.perf_counter()
            os.fdatasync(file.fileno())
            found.append(time.perf_counter() - began_s)
    return found


def _files(settings: Settings) -> Iterator[Finding]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.connections_max + OTHER_FILES_MAX
    if hard != resource.RLIM_INFINITY and hard < wanted:
        text = f"{hard} open files allow {max(1, hard - OTHER_FILES_MAX)} connections; raise it (LimitNOFILE, ulimit)"
        yield Finding(NOTE, "files", text)
    else:
        yield Finding(GOOD, "files", f"the limit of open files allows {settings.connections_max} connections")


def _memory(_: Settings) -> Iterator[Finding]:
    soft, _hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        text = f"the address space is limited to {soft >> 20} MiB, but the state is mapped into it; raise `ulimit -v`"
        yield Finding(NOTE, "memory", text)
        return
    pages, size = os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    yield Finding(GOOD, "memory", f"{(pages * size) >> 20} MiB free")


def _clock(_: Settings) -> Iterator[Finding]:
    """Check that the wall clock runs like the monotonic one, and shows a plausible year."""
    wall_s, steady_s = time.time(), time.monotonic()
    time.sleep(0.2)
    drift_s = (time.time() - wall_s) - (time.monotonic() - steady_s)
    year = time.gmtime().tm_year
    if year < YEAR_MIN:
        yield Finding(BAD, "clock", f"the year is {year}; set the clock, because delays and expiry depend on it")
    elif abs(drift_s) > CLOCK_NOTE_S:
        yield Finding(
            NOTE, "clock", f"the clock was stepped by {drift_s:.1f} s just now; only one service should adjust it"
        )
    else:
        yield Finding(GOOD, "clock", f"{time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime())}")


def is_bad(findings: list[Finding]) -> bool:
    """Whether any finding is bad."""
    return any(finding.level == BAD for finding in findings)
