"""The broker on a disk that is full or fails, in a directory that is in use, and on damaged or foreign files.

A refusal names the file, the place, and what to do, and leaves the file as it was.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.conftest import Connect, StartBroker
from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.clients.lines import LineClient, Message
from tests.helpers.programs import traced

DAMAGED = 65
IN_USE = 73
SYNC_FAILED = 74
DISK_BYTES = 64 << 20
BALLAST_BYTES = 24 << 20
BODY = "x" * 60_000
RECOVERY_TIMEOUT_S = 10.0
FAIL_STOP_TIMEOUT_S = 5.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system that is soon full."""
    directory = tmp_path / "small"
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(directory)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"a full disk needs root to mount a tmpfs: {mounted.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def publish_until_refused(client: LineClient) -> tuple[int, Message]:
    """Publish until the broker says no; return how many it took, and what it said."""
    for number in range(4 * DISK_BYTES // len(BODY)):
        reply = client.ask("PUB", "q", message=BODY)
        if reply["cmd"] != "ok":
            return number, reply
    raise AssertionError("the broker accepted four times what the disk can hold")


def test_full_disk_refuses_publishes_and_still_accepts_acks(
    start_broker: StartBroker, small_disk: Path, connect: Connect
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    broker = start_broker(data_dir=small_disk / "data")
    client = connect(broker)

    accepted, refusal = publish_until_refused(client)

    assert refusal["err"] == "DISK_FULL"
    assert accepted >= 10
    for _ in range(5):
        message = client.ask("FET", "q")
        assert message["cmd"] == "msg"
        assert client.ask("ACK", "q", uid=message["uid"], lease=message["lease"])["cmd"] == "okack"
    assert broker.running

    ballast.unlink()

    assert published_again(client), f"publishes are still refused {RECOVERY_TIMEOUT_S} s after there was space"
    broker.terminate()
    broker.restart()
    assert remaining(connect(broker)) == accepted - 5 + 1


def published_again(client: LineClient) -> bool:
    deadline_s = time.monotonic() + RECOVERY_TIMEOUT_S
    while time.monotonic() < deadline_s:
        reply = client.ask("PUB", "q", message=BODY)
        if reply["cmd"] == "ok":
            return True
        assert reply["err"] == "DISK_FULL", reply
    return False


def remaining(client: LineClient, queue: str = "q") -> int:
    """Fetch and acknowledge all that can be fetched; return how many it was."""
    count = 0
    while (reply := client.ask("FET", queue, count=10))["cmd"] == "msgs":
        count += len(reply["messages"])
        client.ask("ACK", queue, uids=[message["uid"] for message in reply["messages"]])
    return count


@pytest.mark.parametrize("file", ["the log", "the state"])
def test_failed_sync_ends_the_node_and_loses_nothing_promised(
    broker: BrokerProcess, connect: Connect, file: str
) -> None:
    if reason := traced.unavailable_reason():
        pytest.skip(reason)
    client = connect(broker)
    client.socket.settimeout(FAIL_STOP_TIMEOUT_S)
    promised = [client.ask("PUB", "q", message=str(number))["uid"] for number in range(20)]
    pattern = "consensus/raft.log" if file == "the log" else "state/**/*.mdb"
    path = next(path for path in sorted(broker.data_dir.glob(pattern)) if "lock" not in path.name)

    with traced.injected(broker.pid, f"{traced.SYNCS}:error=EIO", path=path):
        try:
            client.send({"cmd": "PUB", "qname": "q", "message": "last"})
            status = broker.wait(FAIL_STOP_TIMEOUT_S)
        finally:
            broker.kill()

    assert status == SYNC_FAILED, broker.stderr
    assert "wakeq" in broker.stderr
    assert "Traceback" not in broker.stderr
    broker.restart()
    reply = connect(broker).ask("FET", "q", count=100)
    assert [message["uid"] for message in reply["messages"]][:20] == promised


def test_directory_in_use_is_refused_with_the_pid_of_its_user(broker: BrokerProcess) -> None:
    second = BrokerProcess(broker.data_dir)

    status = second.run_to_end()

    assert status == IN_USE, second.stderr
    assert str(broker.pid) in second.stderr
    assert "Traceback" not in second.stderr
    assert broker.running
    second.close()


@pytest.mark.parametrize("end", ["kill", "terminate"])
def test_directory_is_free_once_its_user_has_ended(broker: BrokerProcess, connect: Connect, end: str) -> None:
    connect(broker).ask("PUB", "q", message="hi")

    getattr(broker, end)()
    broker.start()

    assert connect(broker).ask("FET", "q")["msg"] == "hi"


def filled_log(broker: BrokerProcess, connect: Connect) -> Path:
    """Publish something, end the broker cleanly, and return its log."""
    client = connect(broker)
    for number in range(50):
        assert client.ask("PUB", "q", message=f"message {number}")["cmd"] == "ok"
    broker.terminate()
    return broker.data_dir / "consensus" / "raft.log"


def demand_refusal(broker: BrokerProcess, file: Path, *, words: tuple[str, ...]) -> None:
    before = file.read_bytes()
    status = broker.run_to_end()
    assert status == DAMAGED, broker.stderr
    for word in (file.name, "offset", "expected", "found", *words):
        assert word in broker.stderr, broker.stderr
    assert "Traceback" not in broker.stderr
    assert file.read_bytes() == before, "the damaged file was changed"


def test_flipped_bit_in_the_middle_of_the_log_is_refused(broker: BrokerProcess, connect: Connect) -> None:
    log = filled_log(broker, connect)
    data = bytearray(log.read_bytes())
    data[len(data.rstrip(b"\0")) // 2] ^= 0x10
    log.write_bytes(data)

    demand_refusal(broker, log, words=())


@pytest.mark.parametrize("name", ["raft.log", "raft.metadata"])
def test_file_with_a_wrong_marker_is_refused(broker: BrokerProcess, connect: Connect, name: str) -> None:
    file = filled_log(broker, connect).with_name(name)
    file.write_bytes(file.read_bytes().replace(bytes.fromhex("2f6f0f2f"), bytes.fromhex("1276ad55")))  # every slot

    demand_refusal(broker, file, words=("2f6f0f2f", "1276ad55"))


def test_torn_tail_is_cut_off_and_reported_and_loses_nothing_promised(broker: BrokerProcess, connect: Connect) -> None:
    client = connect(broker)
    for number in range(51):  # the last one stands for a record that the crash cut off before its answer
        client.ask("PUB", "q", message=f"message {number}")
    broker.kill()
    log = broker.data_dir / "consensus" / "raft.log"
    data = log.read_bytes()
    end = len(data.rstrip(b"\0"))  # behind it the file may be empty space
    log.write_bytes(data[: end - 4] + bytes(4) + data[end:])

    broker.restart()

    reply = connect(broker).ask("FET", "q", count=100)
    assert [message["msg"] for message in reply["messages"]] == [f"message {number}" for number in range(50)]
    assert "raft.log" in broker.stderr


def fill(disk: Path) -> None:
    """Take what is left of a disk, as another program may."""
    with open(disk / "other", "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


@pytest.mark.parametrize("times", [1, 2])
def test_shutdown_ends_on_a_disk_without_a_free_byte(
    start_broker: StartBroker, small_disk: Path, connect: Connect, times: int
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    broker = start_broker(data_dir=small_disk / "data")
    client = connect(broker)
    for _ in range(times):
        for number in range(100):
            assert client.ask("PUB", "q", message=f"{number}")["cmd"] == "ok"
        time.sleep(1.5)  # a cut of the state
    assert client.ask("PUB", "q", message="last")["cmd"] == "ok"

    fill(small_disk)
    broker.terminate()
    status = broker.wait(RECOVERY_TIMEOUT_S)

    assert status == 0, broker.stderr
    (small_disk / "other").unlink()
    broker.start()
    assert connect(broker).ask("STATS", "q")["stats"]["published"] == 100 * times + 1
