"""The HTTP API: publishing one message, as the dashboard's form does."""

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.brokers.node_here import client_of, node_here, run
from wakeq.config.settings import QueueDefaults


def published(tmp_path: Path, body: dict[str, Any], **settings: Any) -> tuple[int, Any, Any]:
    """Publish to a fresh node; return the status, the answer and what a worker is then delivered, if anything."""

    async def tell() -> tuple[int, Any, Any]:
        async with node_here(tmp_path / "data", **settings) as here, client_of(here) as client:
            status, answer = await here.call("POST", "/messages", body)
            return status, answer, await client.fetch("jobs") if status == 200 else None

    found: tuple[int, Any, Any] = run(tell())
    return found


def test_message_reaches_a_worker_with_all_its_parts(tmp_path: Path) -> None:
    body = {"queue": "jobs", "body": "é", "priority": 7, "timeout": 60, "expires": 900, "headers": {"tenant": "a"}}

    status, answer, message = published(tmp_path, body)

    assert (status, answer["queue"]) == (200, "jobs")
    assert (message.uid, message.body, message.priority) == (answer["uid"], "é".encode(), 7)
    assert message.headers == {"tenant": "a"}


def test_body_in_base64_is_published_as_its_bytes(tmp_path: Path) -> None:
    _, _, message = published(tmp_path, {"queue": "jobs", "body": "/wA=", "enc": "b64"})

    assert message.body == b"\xff\0"


def test_delayed_message_is_not_delivered_yet(tmp_path: Path) -> None:
    status, _, message = published(tmp_path, {"queue": "jobs", "body": "later", "delay": 3600})

    assert (status, message) == (200, None)


@pytest.mark.parametrize(
    ("more", "status", "words"),
    [
        ({"timeout": 1}, 400, "timeout"),
        ({"delay": -1}, 400, "delay"),
        ({"priority": "high"}, 400, "priority"),
        ({"headers": {"n": 1}}, 400, "headers"),
        ({"body": "not base64", "enc": "b64"}, 400, "base64"),
        ({"queue": "a b"}, 400, "name"),
        ({"body": "x" * 2_000}, 413, "1000"),
    ],
)
def test_bad_message_is_refused_in_words(tmp_path: Path, more: dict[str, Any], status: int, words: str) -> None:
    found, answer, _ = published(tmp_path, {"queue": "jobs", "body": "1"} | more, message_bytes_max=1_000)

    assert found == status
    assert words in answer["error"]["detail"]


def test_full_queue_refuses_the_message(tmp_path: Path) -> None:
    async def tell() -> Any:
        async with node_here(tmp_path / "data") as here:
            await here.call("POST", "/queues", {"queue": "jobs", "policies": {"max_size": 1}})
            return [await here.call("POST", "/messages", {"queue": "jobs", "body": "1"}) for _ in range(2)]

    (first, _), (second, answer) = run(tell())

    assert (first, second, answer["error"]["code"]) == (200, 409, "QUEUE_FULL")


def test_log_of_the_broker_names_the_operator_and_not_the_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wakeq.admin")

    published(tmp_path, {"queue": "jobs", "body": "a secret"})

    assert "POST /api/v1/messages" in caplog.text
    assert "a secret" not in caplog.text


def test_queue_that_is_created_has_the_policies_of_the_settings(tmp_path: Path) -> None:
    async def tell() -> Any:
        policies = QueueDefaults(max_deliveries=5, timeout=77)
        async with node_here(tmp_path / "data", queue=policies) as here, client_of(here) as client:
            await client.publish("by_worker", b"1")
            await here.call("POST", "/messages", {"queue": "by_form", "body": "1"})
            return [await client.stats(name) for name in ("by_worker", "by_form")]

    by_worker, by_form = run(tell())

    assert (by_form["policies"]["max_deliveries"], by_form["policies"]["timeout"]) == (5, 77)
    assert by_form["policies"] == by_worker["policies"]
