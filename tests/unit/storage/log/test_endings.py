"""Endings: the log says how a message ended."""

from pathlib import Path

import pytest

from tests.helpers.brokers.broker import Broker
from wakeq.protocol.uid import parse
from wakeq.storage.log import endings
from wakeq.storage.log.endings import ending_of


def test_ending_of_each_kind_is_found_in_the_log(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    client = broker.client()
    acked, dead, ready = (client.publish("q", body) for body in "abc")
    expired = client.publish("q", "d", expires=5)
    for command in ({"cmd": "ACK"}, {"cmd": "NACK", "dead": True}):
        one = client.fetch("q")
        client.ask({**command, "qname": "q", "uid": one["uid"], "lease": one["lease"]})
    broker.advance(10)

    found = [ending_of(broker.files.log, *(parse(uid) or (0, 0))) for uid in (acked, dead, expired, ready)]
    broker.close()

    assert [one and one.how for one in found] == ["was acknowledged", "became a dead letter", "expired", None]
    assert all(one is None or one.at_ms > 0 for one in found)


def test_search_in_a_large_log_reads_only_its_newest_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(tmp_path)
    client = broker.client()
    acked = client.publish("q", "a")
    one = client.fetch("q")
    client.call("ACK", "q", uid=one["uid"], lease=one["lease"])
    for _ in range(100):
        client.publish("q", "more")
    monkeypatch.setattr(endings, "SEARCH_BYTES_MAX", broker.files.log.size_bytes // 10)

    found = ending_of(broker.files.log, *(parse(acked) or (0, 0)))
    broker.close()

    assert found is None
