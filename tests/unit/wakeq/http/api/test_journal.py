"""Journal: ranges of the files of the history, and the limits of reading them."""

import asyncio
import io
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.helpers.brokers.node_here import NodeHere, client_of, node_here, run
from wakeq.http.api import journal as journal_routes
from wakeq.http.api import streaming
from wakeq.http.api.journal import FileQuery, Journal
from wakeq.protocol.errors import Busy, StorageError
from wakeq.protocol.log.format import Identity
from wakeq.protocol.log.listing import Listing
from wakeq.storage.thread import DiskThread, InlineDisk

DEADLINE_S = 10.0
SIZE = 1000
FILE = bytes(range(250)) * 4
ME = Identity(bytes(16), 1)


class OneFile:
    """A history of one file, which may become shorter, or fail."""

    def __init__(self, data: bytes = FILE) -> None:
        self.data = data
        self.path = Path("raft.log")
        self.size_bytes = len(data)
        self.fails = False
        self.closed = 0

    def read(self, offset: int, size: int) -> bytes:
        if self.fails:
            raise StorageError("the disk is broken")
        return self.data[offset : offset + size]

    def close(self) -> None:
        self.closed += 1

    def open_segment(self, _: int) -> Any:
        return self

    open_outcomes = open_segment

    def listing(self) -> Any:
        raise AssertionError("nothing is read after the stop")


class Peer:
    """A request, and the response to it; it reads everything, or nothing until it is told."""

    def __init__(self, http_range: str | None = None) -> None:
        self.headers = {} if http_range is None else {"Range": http_range}
        self.http_range = slice(None) if http_range is None else range_of(http_range)
        self.transport = self
        self.is_aborted = False
        self.body = io.BytesIO()
        self.reads = asyncio.Event()
        self.reads.set()

    def abort(self) -> None:
        self.is_aborted = True


def range_of(text: str) -> slice:
    first, _, last = text.removeprefix("bytes=").partition("-")
    return slice(int(first), int(last) + 1)


class Response:
    """What aiohttp would write."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.headers: dict[str, str] = {}
        self.content_length = 0

    async def prepare(self, peer: Peer) -> None:
        self._peer = peer

    async def write(self, piece: bytes) -> None:
        await self._peer.reads.wait()
        self._peer.body.write(piece)

    async def write_eof(self) -> None:
        assert len(self._peer.body.getvalue()) == self.content_length


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_routes, "PIECE_BYTES", 7)
    monkeypatch.setattr("aiohttp.web.StreamResponse", Response)


def journal_of(file: OneFile) -> Journal:
    return Journal(ME, file, lambda _: InlineDisk())  # type: ignore[arg-type]


def sent(file: OneFile, *peers: Peer) -> list[Any]:
    """Serve these requests at the same time; return responses and errors."""

    async def serve() -> list[Any]:
        journal = journal_of(file)
        asked: Any = [journal.segment(peer, None, FileQuery(1)) for peer in peers]  # type: ignore[arg-type]
        async with asyncio.timeout(DEADLINE_S):
            return list(await asyncio.gather(*asked, return_exceptions=True))

    return asyncio.run(serve())


async def ranged(here: NodeHere, path: str, http_range: str | None) -> tuple[int, bytes, str]:
    headers = {} if http_range is None else {"Range": http_range}
    async with here.session.get(f"{here.http}/api/v1/journal{path}", headers=headers) as response:
        return response.status, await response.read(), response.headers.get("Content-Range", "")


def test_ranges_of_a_segment_are_those_of_its_file(tmp_path: Path) -> None:
    async def story() -> Any:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.publish_many("jobs", ["m"] * 10)
            listing = msgspec.json.decode((await here.get("/api/v1/journal"))[1], type=Listing)
            path = f"/segment?first_index=1&cluster={listing.cluster}&node={listing.node}"
            size = (await ranged(here, path, "bytes=0-0"))[2].rpartition("/")[2]
            asked = (None, "bytes=0-9", "bytes=10-", "bytes=-5", "bytes=5-99999999", f"bytes={size}-", "bytes=9-1", "x")
            found = [await ranged(here, path, one) for one in asked]
            whole = (tmp_path / "data" / "consensus" / "raft.log").read_bytes()[: int(size)]
            return listing, whole, found

    listing, whole, found = run(story())

    assert [one.first_index for one in listing.segments] == [1]
    size = len(whole)
    assert found[0] == (200, whole, "")
    assert found[1] == (206, whole[:10], f"bytes 0-9/{size}")
    assert found[2] == (206, whole[10:], f"bytes 10-{size - 1}/{size}")
    assert found[3] == (206, whole[-5:], f"bytes {size - 5}-{size - 1}/{size}")
    assert found[4] == (206, whole[5:], f"bytes 5-{size - 1}/{size}")
    assert (found[5][0], found[5][2]) == (416, f"bytes */{size}")
    assert [status for status, *_ in found[6:]] == [400, 400]


def test_wrong_range_of_a_file_that_is_gone_is_refused_as_a_wrong_range(tmp_path: Path) -> None:
    async def story() -> list[int]:
        async with node_here(tmp_path / "data") as here:
            return [(await ranged(here, "/segment?first_index=99", one))[0] for one in ("", "bytes=-", "bytes=1-2,4-5")]

    assert run(story()) == [400] * 3


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/segment?first_index=99", 410, b"HISTORY_GONE"),
        ("/outcomes?first_index=99", 410, b"HISTORY_GONE"),
        ("/segment?first_index=1&node=7", 410, b"of another node"),
        ("/segment?first_index=1&cluster=abc", 410, b"of another node"),
        ("/segment?first_index=0", 400, b"BAD_FIELD"),
        ("/segment", 400, b"BAD_FIELD"),
        ("/segment?first_index=1&queue=jobs", 400, b"BAD_FIELD"),
    ],
)
def test_file_that_is_not_there_is_refused(tmp_path: Path, path: str, status: int, code: bytes) -> None:
    async def story() -> tuple[int, bytes, str]:
        async with node_here(tmp_path / "data") as here:
            return await ranged(here, path, "bytes=0-9")

    found = run(story())

    assert found[0] == status
    assert code in found[1]


@pytest.mark.usefixtures("small_pieces")
def test_file_is_sent_in_pieces_and_closed() -> None:
    file, whole, part = OneFile(), Peer(), Peer("bytes=3-500")

    statuses = [response.status for response in sent(file, whole, part)]

    assert (statuses, whole.body.getvalue(), part.body.getvalue()) == ([200, 206], FILE, FILE[3:501])
    assert file.closed == 2


@pytest.mark.usefixtures("small_pieces")
def test_file_that_becomes_shorter_or_fails_aborts_the_connection() -> None:
    shorter, failing, peers = OneFile(), OneFile(), (Peer(), Peer())
    shorter.data = FILE[:20]
    failing.fails = True

    errors = sent(shorter, peers[0]) + sent(failing, peers[1])

    assert [type(error) for error in errors] == [ConnectionResetError] * 2
    assert [peer.is_aborted for peer in peers] == [True, True]
    assert (shorter.closed, failing.closed) == (1, 1)


@pytest.mark.usefixtures("small_pieces")
def test_reader_that_does_not_read_ends_and_frees_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_routes, "SENDING_MAX", 1)
    monkeypatch.setattr(streaming, "READ_S_MAX", 0.01)
    stuck, next_one, file = Peer(), Peer(), OneFile()
    stuck.reads.clear()

    first, second = sent(file, stuck, next_one)

    assert isinstance(first, ConnectionResetError)
    assert stuck.is_aborted
    assert (second.status, next_one.body.getvalue()) == (200, FILE)


@pytest.mark.usefixtures("small_pieces")
def test_reader_that_is_too_slow_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_routes, "SEND_S_MAX", 0.01)
    slow, file = Peer(), OneFile()
    slow.reads.clear()

    (error,) = sent(file, slow)

    assert isinstance(error, ConnectionResetError)
    assert (slow.is_aborted, file.closed) == (True, 1)


@pytest.mark.usefixtures("small_pieces")
def test_requests_beyond_the_limits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_routes, "SENDING_MAX", 1)
    monkeypatch.setattr(journal_routes, "WAITING_MAX", 2)
    monkeypatch.setattr(journal_routes, "WAIT_S_MAX", 0.01)

    async def story() -> tuple[list[Any], int]:
        file, slow = OneFile(), Peer()
        journal = journal_of(file)
        slow.reads.clear()
        sending = asyncio.ensure_future(journal.segment(slow, None, FileQuery(1)))  # type: ignore[arg-type]
        while not journal._disk:
            await asyncio.sleep(0)
        asked: Any = [journal.segment(Peer(), None, FileQuery(1)) for _ in range(3)]  # type: ignore[arg-type]
        refused = list(await asyncio.gather(*asked, return_exceptions=True))
        slow.reads.set()
        return refused, (await sending).status

    refused, status = asyncio.run(story())

    assert [type(error) for error in refused] == [Busy] * 3
    assert sorted(str(error).partition(" readers")[0].partition(" requests")[0] for error in refused) == ["1", "1", "2"]
    assert status == 200


def test_stop_waits_for_the_read_that_is_on_its_way() -> None:
    async def scenario() -> bool:
        loop, begun, goes_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
        disk = DiskThread("wakeq-test", loop.call_soon_threadsafe)
        journal = Journal(ME, OneFile(), lambda _: disk)  # type: ignore[arg-type]
        answers: list[Any] = []

        def read() -> str:
            loop.call_soon_threadsafe(begun.set)
            goes_on.wait(DEADLINE_S)
            return "read"

        reading = asyncio.create_task(journal.read(read))
        reading.add_done_callback(answers.append)
        await begun.wait()
        stopping = asyncio.create_task(journal.stop())
        await asyncio.sleep(0)
        stopped_early = stopping.done()
        goes_on.set()
        await asyncio.wait_for(stopping, DEADLINE_S)
        return not stopped_early and len(answers) == 1

    assert asyncio.run(scenario())


@pytest.mark.usefixtures("small_pieces")
def test_broker_that_stops_cuts_off_its_answers() -> None:
    async def story() -> tuple[Any, bool, int]:
        file, peer = OneFile(), Peer()
        journal = journal_of(file)
        peer.reads.clear()
        sending = asyncio.ensure_future(journal.segment(peer, None, FileQuery(1)))  # type: ignore[arg-type]
        while not journal._disk:
            await asyncio.sleep(0)
        await journal.stop()
        # A peer that does not read must not delay the stop.
        is_aborted = peer.is_aborted
        peer.reads.set()
        (error,) = await asyncio.gather(sending, return_exceptions=True)
        with pytest.raises(Busy, match="stopping"):
            await journal.listing()
        return error, is_aborted, file.closed

    error, is_aborted, closed = asyncio.run(story())

    assert isinstance(error, ConnectionResetError)
    assert (is_aborted, closed) == (True, 1)


@pytest.mark.usefixtures("small_pieces")
def test_file_opened_for_a_request_that_was_cancelled_is_closed() -> None:
    async def story() -> int:
        file, kept = HistoryFileLike(), list[Any]()
        disk = SimpleNamespace(submit=lambda work, done: kept.append((work, done)), close=lambda wait: None)
        journal = Journal(ME, file, lambda _: disk)  # type: ignore[arg-type, return-value]
        sending = asyncio.ensure_future(journal.segment(Peer(), None, FileQuery(1)))  # type: ignore[arg-type]
        while not kept:
            await asyncio.sleep(0)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        work, done = kept[0]
        done(work())
        return file.closed

    assert asyncio.run(story()) == 1


class HistoryFileLike(OneFile, journal_routes.HistoryFile):
    """A file that the routes know as one."""

    def __init__(self) -> None:
        OneFile.__init__(self)
