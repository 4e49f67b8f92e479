"""Doctor: what would bite whoever runs a broker on this machine: looked at, nothing changed but a file of its own.

settings --> checks --> findings: good, worth knowing, or bad, each with what to do
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
from wakeq.protocol.wire.peer.frames import split_address
from wakeq.storage.cluster_secret import read_secret
from wakeq.storage.directory import REUSABLE_SHARE, DataDirectory, is_empty, reserve_on
from wakeq.storage.files import free_bytes
from wakeq.storage.mounts import warnings_of
from wakeq.storage.tokens import TokenFile

GOOD, NOTE, BAD = "good", "note", "bad"
SYNCS = 25
SYNC_NOTE_S, SYNC_BAD_S = 0.01, 0.1
ROOM_NOTE_BYTES = 2 << 30  # before publishes are refused
CLOCK_NOTE_S = 1.0
YEAR_MIN = 2025
FILES_APART = 256
CERTIFICATE_NOTE_S = 30 * 86_400  # before it ends: for what is renewed by hand, and what renews itself does so earlier
PACKAGES = ("pykka", "lmdb", "msgspec", "aiohttp", "uvloop")


class Finding(NamedTuple):
    """One thing that was looked at."""

    level: str
    what: str
    text: str


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at everything; a check that cannot be made says why."""
    checks: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
        _versions, _ports, _security, _monique, _directory, _disk, _files, _memory, _clock,
    )  # fmt: skip
    for check in checks:
        try:
            yield from check(settings)
        except (OSError, WakeqError) as error:
            yield Finding(BAD, check.__name__.strip("_"), f"could not be checked: {error}")


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
        wanted.append(("cluster.peers", *split_address(plan.addresses[plan.node_id])))
    for name, host, port in wanted:
        if port is not None:
            yield _port(name, host, port)


def _port(name: str, host: str, port: int) -> Finding:
    """Say whether a port can be had."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            hint = "does a broker run already?" if error.errno == EADDRINUSE else "is that this machine's address?"
            return Finding(NOTE, "ports", f"{name} {port} on {host}: {error.strerror}; {hint}")
    return Finding(GOOD, "ports", f"{name} {port} on {host} is free")


def _security(settings: Settings) -> Iterator[Finding]:
    """Look whether certificates and tokens can be read, as a start would."""
    tls = settings.tls
    if tls.cert_file is not None and tls.key_file is not None:
        server_context(tls.cert_file, tls.key_file, tls.peer_ca_file)
        if text := shared_key(settings):
            yield Finding(NOTE, "security", text)
        now = datetime.fromtimestamp(time.time(), UTC)
        yield _in_time(tls.cert_file, now, any_will_do=False)
        if tls.peer_ca_file is not None:
            yield _in_time(tls.peer_ca_file, now, any_will_do=True)
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
            yield Finding(GOOD, "security", f"{count} tokens are in {settings.tokens_path}")
        else:
            yield Finding(NOTE, "security", f"no token is in {settings.tokens_path}: `wakeq token create` makes one")
    if settings.insecure:
        text = f"insecure: anyone who reaches {settings.host} needs no TLS, or no token; something else must protect it"
        yield Finding(NOTE, "security", text)


def _in_time(file: Path, now: datetime, *, any_will_do: bool) -> Finding:
    """Say how long a file's certificates hold: the first one must, of authorities any."""
    found = validities(file)
    if not found:
        return Finding(BAD, "security", f"TLS with {file}: it contains no certificate; give the file that does")
    needed = found if any_will_do else found[:1]
    begins, ends = min(one.begins for one in needed), min(one.ends for one in found)
    last = max(one.ends for one in needed)
    renew = "renew it; SIGHUP makes a running broker use the new one"
    if last <= now:
        level, text = BAD, f"a certificate in it expired on {last:%Y-%m-%d}, so nobody can connect: {renew}"
    elif begins > now:
        level, text = BAD, f"a certificate in it is not valid before {begins:%Y-%m-%d %H:%M} UTC; is the clock right?"
    elif ends <= now:
        level, text = NOTE, f"one of several certificates in it expired on {ends:%Y-%m-%d}; remove it, or {renew}"
    elif (ends - now).total_seconds() < CERTIFICATE_NOTE_S:
        level, text = NOTE, f"a certificate in it expires on {ends:%Y-%m-%d}: {renew}"
    else:
        level, text = GOOD, f"it is valid until {ends:%Y-%m-%d}"
    return Finding(level, "security", f"TLS with {file}: {text}")


def _monique(settings: Settings) -> Iterator[Finding]:
    """Look whether what its config.json wants can be served, as a start would."""
    path = settings.monique.config_file
    if path is not None:
        config = read_config(path)
        check_config(config, partial(may_listen, settings))
        for name, host, port in config.ports():
            yield _port(f"MoniQue's {name}", "0.0.0.0" if host == "*" else host, port)


def _directory(settings: Settings) -> Iterator[Finding]:
    path = settings.data_dir
    file = _file_in_the_way(path)
    if file is not None:
        yield Finding(BAD, "data", f"{file} is a file, not a directory: choose another path")
    elif is_empty(path):
        yield Finding(GOOD, "data", f"{path} is empty; the first start makes it a data directory")
    else:
        directory = DataDirectory.read_only(path)
        pid = directory.holder_pid
        who = "" if pid is None else f", in use by the node with pid {pid or 'unknown'}"
        yield Finding(GOOD, "data", f"{path} belongs to node {directory.identity.node_id}{who}")
    for warning in warnings_of(_existing(path)):
        yield Finding(NOTE, "data", warning)


def _file_in_the_way(path: Path) -> Path | None:
    """Return what is no directory of the path or of the folders in which it would be made."""
    path = path.absolute()
    return next((part for part in (path, *path.parents) if part.exists() and not part.is_dir()), None)


def _existing(path: Path) -> Path:
    """Return the path, or the folder in which it would be made."""
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
    """Say how much may be written before publishes are refused."""
    free, reserve = free_bytes(folder), reserve_on(folder)
    refused = f"publishes are refused below {reserve >> 20} MiB"
    if free < reserve - reserve // REUSABLE_SHARE:  # above it there may be room within the state's file
        return Finding(BAD, "disk", f"{free >> 20} MiB are free, and {refused}: make room")
    level = NOTE if free - reserve < ROOM_NOTE_BYTES else GOOD
    return Finding(level, "disk", f"{free >> 20} MiB are free; {refused}")


def _sync_seconds(folder: Path) -> list[float]:
    """Write and sync a little, as the log does."""
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
    wanted = settings.connections_max + FILES_APART
    if hard != resource.RLIM_INFINITY and hard < wanted:
        text = (
            f"{hard} open files allow {max(1, hard - FILES_APART)} connections; raise the limit (LimitNOFILE, ulimit)"
        )
        yield Finding(NOTE, "files", text)
    else:
        yield Finding(GOOD, "files", f"the limit of open files allows {settings.connections_max} connections")


def _memory(_: Settings) -> Iterator[Finding]:
    soft, _hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        text = f"the address space is limited to {soft >> 20} MiB, but the state is mapped into it: raise `ulimit -v`"
        yield Finding(NOTE, "memory", text)
        return
    pages, size = os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    yield Finding(GOOD, "memory", f"{(pages * size) >> 20} MiB are free")


def _clock(_: Settings) -> Iterator[Finding]:
    """Look whether the wall clock runs as the monotonic one does, and is not from long ago."""
    wall_s, steady_s = time.time(), time.monotonic()
    time.sleep(0.2)
    drift_s = (time.time() - wall_s) - (time.monotonic() - steady_s)
    year = time.gmtime().tm_year
    if year < YEAR_MIN:
        yield Finding(BAD, "clock", f"the year is {year}; set the clock, which delays and expiry depend on")
    elif abs(drift_s) > CLOCK_NOTE_S:
        yield Finding(NOTE, "clock", f"the clock was stepped by {drift_s:.1f} s just now; let one service adjust it")
    else:
        yield Finding(GOOD, "clock", f"{time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime())}")


def is_bad(findings: list[Finding]) -> bool:
    """Whether something must be mended first."""
    return any(finding.level == BAD for finding in findings)
