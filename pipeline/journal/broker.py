"""BrokerFiles: the history of a node, read over its HTTP port.

    URL, token, TLS --> GET /api/v1/journal ... --> segments, outcomes, open segments

Nobody needs the disk of the broker, and many tasks read at the same time. The token and the authorities to trust travel
with the tasks by value, because executors have neither the files nor the environment of the driver. The token must
never appear in an error, a plan or a log.
"""

import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import msgspec

from wakeq.client.admin import AdminClient
from wakeq.client.connection import SYSTEM, token_source
from wakeq.pipeline.journal.files import Contents, OpenSegment, Segment
from wakeq.protocol.errors import BadSettings, BrokerUnreachable, Busy, HistoryGone, Refused
from wakeq.protocol.log.format import Identity
from wakeq.protocol.log.listing import Listing
from wakeq.protocol.log.outcomes import Outcomes, decode_header, decode_records

# Outcomes are read in parts of this size.
PART_BYTES = 8 * 1024 * 1024
# A broker lets readers wait for each other, and refuses when too many of them wait.
BUSY_TRIES = 30
BUSY_PAUSE_S = 1.0

T = TypeVar("T")


class RemoteFile:
    """A file of a node, read over one connection."""

    def __init__(
        self, client: AdminClient, path: str, name: str, identity: Identity, first_index: int, size_bytes: int
    ) -> None:
        self.name = name
        # As of the last answer.
        self.size_bytes = size_bytes
        self._client = client
        self._path = path
        # Another node, behind the same address, has another file of this first index.
        self._query = {"first_index": first_index, "cluster": identity.cluster_id.hex(), "node": identity.node_id}

    def read(self, offset: int, size: int) -> bytes:
        if size <= 0:
            return b""
        data, self.size_bytes = patiently(lambda: self._client.read_range(self._path, offset, size, **self._query))
        return data

    def close(self) -> None:
        self._client.close()


@dataclass(frozen=True, slots=True)
class BrokerFiles:
    """One node, by the address of its HTTP port."""

    name: str
    # None: each process looks into its own environment.
    token: str | None = field(default=None, repr=False)
    # The PEM text of the authorities to trust, or `system`; None: the URL and the environment of each process decide.
    authorities: str | None = field(default=None, repr=False)

    @classmethod
    def at(
        cls, address: str, *, token: str | None = None, token_file: str | None = None, tls: str | None = None
    ) -> "BrokerFiles":
        """Return the node at a URL or HOST:PORT; `tls` is the path of a file of authorities, or `system`.

        What is not given comes from the environment, as for every client.
        """
        if "@" in address:
            raise BadSettings("the address of a broker contains no password; give a token (WAKEQ_TOKEN, or the option)")
        token = token or token_source(Path(token_file) if token_file else None)()
        tls = tls or os.environ.get("WAKEQ_TLS") or None
        # As an option of Spark, `true` is what True is for a client.
        tls = SYSTEM if tls == "true" else tls
        authorities = tls if tls in (None, SYSTEM) else _pem_in(tls)
        try:
            _context_of(authorities)
        except (ssl.SSLError, ValueError) as error:
            raise BadSettings(f"tls: {tls} is not a file of certificates ({error}); give one, or {SYSTEM!r}") from None
        return cls(address, token, authorities)

    def contents(self) -> Contents:
        """Return what the node has."""
        client = self._client()
        try:
            answer = patiently(lambda: client.call("GET", "/journal"))
            listing = msgspec.convert(answer, Listing)
            identity = Identity(bytes.fromhex(listing.cluster), listing.node)
            segments = [
                Segment(self, identity, one.first_index, one.last_index if one.is_sealed else None, one.size_bytes, one)
                for one in listing.segments
                if one.size_bytes
            ]
            return Contents(segments, list(self._outcomes(client, listing, identity)))
        except (msgspec.ValidationError, ValueError) as error:
            raise Refused(f"{self.name}: this release does not know such a journal ({error})") from None
        finally:
            client.close()

    def open(self, segment: Segment) -> OpenSegment:
        """Open a segment, with a connection of its own."""
        assert segment.facts is not None, "the broker has listed it"
        name = f"{self.name}: the segment from entry {segment.first_index}"
        file = RemoteFile(
            self._client(), "/journal/segment", name, segment.identity, segment.first_index, segment.size_bytes
        )
        try:
            return OpenSegment(file, is_sealed=segment.facts.is_sealed)
        except BrokerUnreachable as error:
            # This may be another machine than the one that made the plan.
            raise BrokerUnreachable(f"{socket.gethostname()} does not reach the broker: {error}") from error

    def _outcomes(self, client: AdminClient, listing: Listing, identity: Identity) -> Iterator[Outcomes]:
        """Yield the outcomes of entries, as far as the node has them."""
        for one in listing.outcomes:
            name = f"{self.name}: the outcomes from entry {one.first_index}"
            file = RemoteFile(client, "/journal/outcomes", name, identity, one.first_index, one.size_bytes)
            try:
                starts = range(0, one.size_bytes, PART_BYTES)
                data = b"".join([file.read(start, min(PART_BYTES, one.size_bytes - start)) for start in starts])
            except HistoryGone:
                # The node has just removed it because of its age.
                continue
            if data:
                yield from decode_records(data, decode_header(data, name)[0], name)

    def _client(self) -> AdminClient:
        return AdminClient(self.name, token=self.token, tls=_context_of(self.authorities))


def patiently(call: Callable[[], T]) -> T:
    """Call, and again after a pause as long as the broker is busy with other readers."""
    for _ in range(BUSY_TRIES):
        try:
            return call()
        except Busy:
            time.sleep(BUSY_PAUSE_S)
    return call()


@lru_cache
def _context_of(authorities: str | None) -> ssl.SSLContext | None:
    if authorities is None:
        return None
    # `ssl` would trust the authorities of the system instead.
    if not authorities:
        raise ValueError("it is empty")
    return ssl.create_default_context(cadata=None if authorities == SYSTEM else authorities)


def _pem_in(path: str) -> str:
    try:
        # Comments between the certificates may be in any encoding.
        return Path(path).read_text("ascii", "ignore")
    except OSError as error:
        raise BadSettings(f"{path} cannot be read: {error.strerror}; check the option tls, or --tls") from None
