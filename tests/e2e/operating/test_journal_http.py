"""The history of real brokers, read over their HTTP ports: while they work, with tokens and TLS, and by the verbs."""

import json
import threading
from pathlib import Path

import pytest
from pyarrow.parquet import ParquetFile

from tests.e2e.conftest import Connect, StartBroker
from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.brokers.sized import sized
from tests.helpers.clients.lines import LineClient
from tests.helpers.journal.files import EVERYTHING, rows_of
from tests.helpers.network.certificates import Authority
from tests.helpers.programs.started import eventually
from tests.helpers.programs.verbs import wakeq
from wakeq.pipeline.journal.broker import BrokerFiles
from wakeq.pipeline.journal.plan import History
from wakeq.protocol.errors import BrokerUnreachable, Unauthorized

MIB = 1024 * 1024
# Segments are sealed and moved all the time.
SMALL = sized(segment_bytes_max=MIB, snapshot_bytes_min=MIB, flush_bytes=MIB // 2)
SECONDS = 30.0


def url_of(broker: BrokerProcess) -> str:
    return f"http://{broker.addresses['http']}"


def work(client: LineClient, count: int, body: str = "x") -> None:
    """Publish, fetch and acknowledge."""
    client.ask("PUB", "jobs", messages=[{"message": body}] * count)
    for _ in range(count):
        message = client.ask("FET", "jobs")
        client.ask("ACK", "jobs", uid=message["uid"], lease=message["lease"])


def test_history_over_http_is_that_of_the_directory(start_broker: StartBroker, connect: Connect) -> None:
    broker = start_broker(command=SMALL)
    client = connect(broker)
    journal = broker.data_dir / "journal"
    while len(list(journal.glob("raft.log.*"))) < 2:
        work(client, 20, "x" * 20_000)
    eventually(lambda: {row["outcome"] for row in rows_of(broker.data_dir)} == {"done"}, "all is flushed", SECONDS)

    rows = rows_of(broker.data_dir, wanted=EVERYTHING, cores=100)

    assert rows_of(url_of(broker), wanted=EVERYTHING, cores=100) == rows
    assert len({row["uid"] for row in rows if row["event"] == "acked"}) >= 40


@pytest.mark.parametrize("is_remote", [True, False])
def test_history_is_whole_while_segments_are_sealed_and_moved(
    start_broker: StartBroker, connect: Connect, is_remote: bool
) -> None:
    broker = start_broker(command=SMALL)
    place = url_of(broker) if is_remote else broker.data_dir
    working, over = connect(broker), threading.Event()
    work(working, 10, "x" * 20_000)

    def go_on() -> None:
        while not over.is_set():
            work(working, 10, "x" * 20_000)

    worker = threading.Thread(target=go_on)
    worker.start()
    try:
        lengths = []
        while len(list((broker.data_dir / "journal").glob("raft.log.*"))) < 6:
            rows = rows_of(place, wanted=EVERYTHING)
            indexes = [row["index"] for row in rows]
            assert sorted(set(indexes)) == list(dict.fromkeys(indexes)), "in order"
            # A part that is missing leaves out numbers, or leaves later ones unknown.
            numbers = [row["number"] for row in rows if row["event"] == "published"]
            assert numbers == list(range(1, len(numbers) + 1))
            lengths.append(len(indexes))
    finally:
        over.set()
        worker.join()

    assert lengths == sorted(lengths)
    assert len(set(lengths)) > 1


def test_segment_is_read_from_a_broker_that_was_restarted(start_broker: StartBroker, connect: Connect) -> None:
    broker = start_broker()
    work(connect(broker), 5)
    # The port may change at a restart.
    port = broker.http_address[1]
    files = BrokerFiles(url_of(broker))
    (segment,) = files.contents().segments

    broker.kill()
    with pytest.raises(BrokerUnreachable, match=str(port)):
        files.open(segment)
    broker.start()

    again = BrokerFiles(url_of(broker)).open(segment)
    assert again.header.first_index == 1
    again.close()


def test_history_needs_a_token_that_may_read_all_queues(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker("--auth")
    token_file = tmp_path / "reader"
    made = wakeq("token", "create", "reader", "--rights", "fetch", "--data-dir", str(broker.data_dir))
    token_file.write_text(made.stdout)
    archive = ("pipeline", "archive", url_of(broker), "--to", str(tmp_path / "lake"))

    without = wakeq(*archive)
    eventually(lambda: wakeq("--token-file", str(token_file), *archive).returncode == 0, "it is known", SECONDS)

    assert without.returncode == 77
    assert without.stderr.count("\n") == 1
    with pytest.raises(Unauthorized):
        History([BrokerFiles(url_of(broker), token="wrong")])
    assert made.stdout.strip() not in broker.stderr


def test_history_is_read_over_tls(start_broker: StartBroker, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    pair = authority.issue("broker")
    broker = start_broker("--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
    url = url_of(broker).replace("http://", "https://")

    trusting = History([BrokerFiles.at(url, tls=str(authority.ca.cert))])
    authority.ca.cert.unlink()

    assert trusting.spans(cores=1), "the authority travels by value"
    assert trusting.stretches[0].segment.open().header.first_index == 1
    with pytest.raises(BrokerUnreachable, match="certificate"):
        History([url])


def test_archive_of_a_url_goes_on_with_that_of_the_directory(
    start_broker: StartBroker, connect: Connect, tmp_path: Path
) -> None:
    broker, lake = start_broker(), str(tmp_path / "lake")
    client = connect(broker)

    def archive(place: str) -> None:
        done = wakeq("pipeline", "archive", place, "--to", lake)
        assert done.returncode == 0, done.stderr

    work(client, 3)
    archive(str(broker.data_dir))
    work(client, 4)
    eventually(lambda: {row["outcome"] for row in rows_of(broker.data_dir)} == {"done"}, "all is flushed", SECONDS)
    archive(url_of(broker))

    found = [row for path in Path(lake).glob("date=*/*.parquet") for row in ParquetFile(path).read().to_pylist()]
    indexes = sorted((row["index"], row["place"]) for row in found)
    assert indexes == sorted((row["index"], row["place"]) for row in rows_of(broker.data_dir))


def test_report_of_a_url_is_that_of_the_directory(start_broker: StartBroker, connect: Connect, tmp_path: Path) -> None:
    broker = start_broker()
    work(connect(broker), 4)
    eventually(lambda: {row["outcome"] for row in rows_of(broker.data_dir)} == {"done"}, "all is flushed", SECONDS)
    pages = tmp_path / "url.html", tmp_path / "directory.html"

    for place, page in zip((url_of(broker), str(broker.data_dir)), pages, strict=True):
        done = wakeq("report", place, "--out", str(page))
        assert (done.returncode, done.stderr) == (0, "")

    assert pages[0].read_text() == pages[1].read_text()
    assert json.loads(pages[0].with_suffix(".json").read_text())["events"]["acked"] == 4
