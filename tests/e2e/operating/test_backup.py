"""Backups of a serving broker: whole, of one moment, restored elsewhere; JSON lines; a directory that is damaged."""

import json
import threading
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import StartBroker
from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.network.ports import free_ports
from tests.helpers.programs.started import eventually
from wakeq.cli import main
from wakeq.client import Client
from wakeq.client.admin import AdminClient


def at(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


def wakeq(broker: BrokerProcess | None, *arguments: object) -> int:
    """Run a command line against a broker."""
    where = [] if broker is None else ["--broker", at(broker.worker_address), "--http", at(broker.http_address)]
    return main([*where, *map(str, arguments)])


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def fill(client: Client) -> list[str]:
    """Publish something of every kind; return the uids of `jobs`."""
    client.create_queue("jobs", max_deliveries=5, retry={"base": 3})
    uids = client.publish_many("jobs", [f"job {number}" for number in range(50)], priority=3, headers={"a": "b"})
    uids.append(client.publish("jobs", b"\x00\xff", delay=1_000, timeout=77))
    client.publish("", b"default", expires=5_000)
    message = client.fetch("jobs")
    assert message is not None
    message.nack(error="once", delay=0)
    return uids


def contents(client: Client) -> dict[str, Any]:
    found = {name: client.peek(name, 100, state="any") for name in ("jobs", "")}
    keys = ("uid", "msg", "enc", "headers", "priority", "due_ms", "expires_ms", "failures", "error")
    return {name: sorted([row[key] for key in keys] for row in rows) for name, rows in found.items()}


def test_backup_restored_to_another_directory_is_unchanged(
    start_broker: StartBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker, to = start_broker(), tmp_path / "backup"
    with Client(at(broker.worker_address)) as client:
        fill(client)
        wakeq(broker, "queue", "pause", "jobs")
        before = contents(client)
        policies = client.stats("jobs")["policies"]

        assert wakeq(broker, "backup", to) == 0
        assert wakeq(broker, "backup", to) == 70, "it does not write over a backup"
    broker.terminate()
    assert wakeq(None, "restore", to, "--data-dir", tmp_path / "restored") == 0
    assert wakeq(None, "restore", to, "--data-dir", tmp_path / "restored") == 70, "nor over data"

    again = start_broker(data_dir=tmp_path / "restored")
    with Client(at(again.worker_address)) as client:
        assert contents(client) == before
        assert client.stats("jobs")["policies"] == policies
        assert client.fetch("jobs") is None, "it is still paused"
        wakeq(again, "queue", "resume", "jobs")
        taken = client.fetch("jobs")
        new = client.publish("jobs", b"new")
        assert taken is not None
        assert new not in {row[0] for row in before["jobs"]}
    again.restart()
    with Client(at(again.worker_address)) as client:
        assert len(client.peek("jobs", 100, state="any")) == 52
    assert to.stat().st_mode & 0o077 == 0


def test_backup_under_load_has_all_earlier_answers_and_a_prefix_of_later_ones(
    start_broker: StartBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker, to, stop = start_broker(), tmp_path / "backup", threading.Event()
    published = 0

    def publish() -> None:
        nonlocal published
        with Client(at(broker.worker_address)) as client:
            while not stop.is_set():
                client.publish_many("jobs", [str(published + place) for place in range(20)])
                published += 20

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        while published < 2_000:
            pass
        answered = published
        assert wakeq(broker, "backup", to) == 0
    finally:
        stop.set()
        thread.join()
    capsys.readouterr()
    assert wakeq(None, "export", "--from", to) == 0

    bodies = [int(line["body"]) for line in printed(capsys) if line["kind"] == "message"]
    assert len(bodies) >= answered
    assert sorted(bodies) == list(range(len(bodies))), "a hole, or half a batch"
    assert len(bodies) % 20 == 0


def test_export_is_imported_once_into_another_broker(
    start_broker: StartBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = start_broker(), start_broker()
    with Client(at(one.worker_address)) as client:
        fill(client)
        before = contents(client)
    capsys.readouterr()
    assert wakeq(one, "export") == 0
    exported = tmp_path / "lines"
    exported.write_text(capsys.readouterr().out)

    for _ in range(2):
        assert wakeq(other, "import", exported) == 0

    with Client(at(other.worker_address)) as client:
        after = contents(client)
        assert client.stats("jobs")["policies"]["retry"]["base"] == 3
    known = [place for place, name in enumerate(("uid", "msg", "enc", "headers", "priority")) if name != "uid"]
    for name in ("jobs", ""):
        assert sorted([row[i] for i in known] for row in after[name]) == sorted(
            [row[i] for i in known] for row in before[name]
        )
    later = [row for row in after["jobs"] if row[2] == "b64"]
    assert len(later) == 1
    assert later[0][5] > 0, "its delay goes on"


def test_export_may_select_queues_and_import_may_rename_them(
    start_broker: StartBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker()
    with Client(at(broker.worker_address)) as client:
        fill(client)
        capsys.readouterr()
        wakeq(broker, "export", "jobs")
        lines = capsys.readouterr().out
        (tmp_path / "lines").write_text(lines)
        assert {json.loads(line)["queue"] for line in lines.splitlines()} == {"jobs"}

        assert wakeq(broker, "import", tmp_path / "lines", "--to", "copy") == 0

        assert client.stats("copy")["size"] == 51


def test_bad_export_lines_and_damaged_backups_are_refused(
    start_broker: StartBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker, to = start_broker(), tmp_path / "backup"
    with Client(at(broker.worker_address)) as client:
        fill(client)
    wakeq(broker, "backup", to)
    wrong = (
        '{"kind": "message"\n',
        '{"kind": "message", "queue": "q"}\n',
        '{"kind": "table", "queue": "q"}\n',
        '{"kind": "message", "queue": "q", "uid": "u", "body": 7}\n',
        "[]\n",
    )
    not_text = b'{"kind": "message", "queue": "q", "uid": "u", "body": "\xff"}\n'
    not_base64 = '{"kind": "message", "queue": "q", "uid": "u", "body": "?", "encoding": "base64"}\n'
    data = bytearray(to.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "rotten").write_bytes(data)
    (tmp_path / "half").write_bytes(data[: len(data) // 2])

    for line in (*map(str.encode, wrong), not_text):
        (tmp_path / "lines").write_bytes(line)
        assert wakeq(broker, "import", tmp_path / "lines") == 1
        assert "line 1 was not printed by export" in capsys.readouterr().err
    (tmp_path / "lines").write_text(not_base64)
    assert wakeq(broker, "import", tmp_path / "lines") == 1
    assert "u in queue q is not base64" in capsys.readouterr().err
    assert wakeq(broker, "export", "jobs", "nowhere") == 1
    said = capsys.readouterr()
    assert (said.out, "the backup has no queue 'nowhere'" in said.err) == ("", True)
    for name in ("rotten", "half"):
        assert wakeq(None, "restore", tmp_path / name, "--data-dir", tmp_path / "made") == 65
        assert not (tmp_path / "made").exists()


def test_data_of_a_single_broker_joins_no_cluster_until_an_operator_agrees(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    alone, to = start_broker(), tmp_path / "backup"
    wakeq(alone, "backup", to)
    assert alone.terminate() == 0
    wakeq(None, "restore", to, "--data-dir", tmp_path / "restored")
    node, other = free_ports(2)
    place = ("--node", "1", "--peers", f"127.0.0.1:{other},127.0.0.1:{node}")

    for data_dir in (alone.data_dir, tmp_path / "restored"):
        refused = BrokerProcess(data_dir, *place)
        assert refused.run_to_end() == 70
        assert "wakeq cluster recover --from-this-node" in refused.stderr
        assert wakeq(None, "cluster", "recover", "--from-this-node", "--yes", "--data-dir", data_dir) == 0
        with refused as node_of_one, Client(at(node_of_one.worker_address)) as client:
            client.publish("jobs", b"it serves")


def test_backup_that_breaks_off_does_not_delay_the_next_one(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    with Client(at(broker.worker_address)) as client:
        for _ in range(40):  # more than is on its way at once
            client.publish_many("jobs", ["x" * 500_000] * 2)

    def full(_: bytes) -> None:
        raise OSError(ENOSPC, "No space left on device")

    with AdminClient(at(broker.http_address)) as operator, pytest.raises(OSError, match="No space left"):
        operator.download("/backup", full)

    eventually(lambda: "a backup was interrupted" in broker.stderr, "the broker sees it")
    assert wakeq(broker, "backup", tmp_path / "whole") == 0, "the next one is not kept waiting"
    assert "Traceback" not in broker.stderr


# A damaged directory ------------------------------------------------------------------------------------------------


def damage(path: Path, at_byte: int = 4096) -> None:
    data = bytearray(path.read_bytes())
    data[at_byte : at_byte + 64] = bytes(byte ^ 0xFF for byte in data[at_byte : at_byte + 64])
    path.write_bytes(data)


def test_damaged_state_is_moved_away_and_rebuilt_from_the_log(
    start_broker: StartBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker()
    with Client(at(broker.worker_address)) as client:
        fill(client)
        before = contents(client)
    assert wakeq(None, "repair", "--dry-run", broker.data_dir) == 73, "a broker runs on it"
    broker.terminate()
    state = broker.data_dir / "state" / "data.mdb"
    state.write_bytes(b"\0" * state.stat().st_size)

    assert wakeq(None, "inspect", broker.data_dir) == 65
    capsys.readouterr()
    assert wakeq(None, "repair", "--dry-run", broker.data_dir) == 65
    assert "the next start rebuilds it from the log" in capsys.readouterr().out
    assert state.exists(), "a dry run does nothing"
    assert wakeq(None, "repair", "--yes", broker.data_dir) == 0

    assert wakeq(None, "repair", "--dry-run", broker.data_dir) == 65, "the state is still to be made"
    assert (broker.data_dir / "state.damaged-1" / "data.mdb").exists()
    broker.start()
    with Client(at(broker.worker_address)) as client:
        assert contents(client) == before


def test_damaged_state_that_cannot_be_rebuilt_is_left_alone_and_reported(
    start_broker: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker()
    with Client(at(broker.worker_address)) as client:
        fill(client)
    broker.terminate()
    log = broker.data_dir / "consensus" / "raft.log"
    before = log.read_bytes()
    damage(log, 200)
    damaged = log.read_bytes()
    assert wakeq(None, "repair", "--dry-run", broker.data_dir) == 65
    assert wakeq(None, "inspect", broker.data_dir) == 65

    assert wakeq(None, "repair", "--yes", broker.data_dir) == 1

    assert "restore a backup" in capsys.readouterr().err
    assert log.read_bytes() == damaged != before


def test_sound_directory_needs_no_repair(start_broker: StartBroker, capsys: pytest.CaptureFixture[str]) -> None:
    broker = start_broker()
    broker.terminate()

    assert wakeq(None, "repair", "--json", broker.data_dir) == 0
    assert printed(capsys) == [{"damage": [], "steps": [], "hopeless": ""}]
    assert wakeq(None, "repair", "--dry-run", broker.data_dir) == 0
    assert wakeq(None, "inspect", broker.data_dir) == 0
