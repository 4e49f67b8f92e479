"""The HTTP API: queues, refusals and probes."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.brokers.node_here import NodeHere, client_of, node_here, run


def story(tmp_path: Path, *calls: tuple[Any, ...]) -> list[tuple[int, Any]]:
    """Make the calls in order on a fresh node; return each status and answer."""

    async def tell() -> list[tuple[int, Any]]:
        async with node_here(tmp_path / "data") as here:
            return [await here.call(*call[:3], **(call[3] if len(call) > 3 else {})) for call in calls]

    answers: list[tuple[int, Any]] = run(tell())
    return answers


def test_queue_is_created_changed_shown_listed_and_deleted(tmp_path: Path) -> None:
    here = {"queue": "a/b"}

    made, again, changed, shown, listed, gone, missing = story(
        tmp_path,
        ("POST", "/queues", {"queue": "a/b", "policies": {"timeout": 9}}),
        ("POST", "/queues", {"queue": "a/b"}),
        ("PATCH", "/queue", {"policies": {"max_size": 3}}, here),
        ("GET", "/queue", None, here),
        ("GET", "/queues", None, {"prefix": "a"}),
        ("DELETE", "/queue", None, here),
        ("GET", "/queue", None, here),
    )

    assert made == (200, {"queue": "a/b"})
    assert (again[0], again[1]["error"]["code"]) == (409, "Q_EXISTS")
    assert changed[0] == 200
    assert (shown[1]["policies"]["timeout"], shown[1]["policies"]["max_size"]) == (9, 3)
    assert [queue["qname"] for queue in listed[1]["queues"]] == ["a/b"]
    assert gone == (200, {"queue": "a/b", "messages": 0})
    assert (missing[0], missing[1]["error"]["code"]) == (404, "Q_NOT_FOUND")


def test_queues_are_listed_in_pages(tmp_path: Path) -> None:
    *_, first, second = story(
        tmp_path,
        *[("POST", "/queues", {"queue": name}) for name in "cab"],
        ("GET", "/queues", None, {"limit": 2}),
        ("GET", "/queues", None, {"limit": 2, "after": "a"}),
    )

    assert ([queue["qname"] for queue in first[1]["queues"]], first[1]["after"]) == (["", "a"], "a")
    assert [queue["qname"] for queue in second[1]["queues"]] == ["b", "c"]


def test_list_of_queues_finds_a_part_of_the_name_in_capitals_or_not(tmp_path: Path) -> None:
    *_, first, second = story(
        tmp_path,
        *[("POST", "/queues", {"queue": name}) for name in ("eu.Mail", "mails", "orders", "us.mail")],
        ("GET", "/queues", None, {"contains": "MAIL", "limit": 2}),
        ("GET", "/queues", None, {"contains": "MAIL", "limit": 2, "after": "mails"}),
    )

    assert [queue["qname"] for queue in first[1]["queues"]] == ["eu.Mail", "mails"]
    assert ([queue["qname"] for queue in second[1]["queues"]], second[1]["after"]) == (["us.mail"], None)


def test_paused_queue_delivers_nothing_until_the_pause_ends(tmp_path: Path) -> None:
    async def tell() -> list[Any]:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.publish("jobs", b"1")
            await client.publish("jobs", b"2")
            status, paused = await here.call("POST", "/queue/pause", {"for_s": 0.5}, queue="jobs")
            nothing = await client.fetch("jobs")
            later = await client.fetch("jobs", wait=20)
            await here.call("POST", "/queue/pause", queue="jobs")
            still = await client.fetch("jobs")
            _, shown = await here.call("GET", "/queue", queue="jobs")
            await here.call("POST", "/queue/resume", queue="jobs")
            return [status, paused, nothing, later, still, shown, await client.fetch("jobs")]

    status, paused, nothing, later, still, shown, last = run(tell())

    assert status == 200
    assert paused["until_ms"] > 0
    assert nothing is None
    assert still is None
    assert shown["paused_until_ms"] > paused["until_ms"]
    assert shown["ready"] == 1
    assert (later.body, last.body) == (b"1", b"2")


def test_pause_survives_a_restart_and_ends_with_its_queue(tmp_path: Path) -> None:
    async def first() -> None:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.publish("jobs", b"1")
            await here.call("POST", "/queue/pause", queue="jobs")

    async def second() -> list[Any]:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            nothing = await client.fetch("jobs")
            await here.call("DELETE", "/queue", queue="jobs")
            await client.publish("jobs", b"2")
            return [nothing, await client.fetch("jobs")]

    run(first())
    nothing, message = run(second())

    assert nothing is None
    assert message.body == b"2"


@pytest.mark.parametrize(
    ("call", "status", "code"),
    [
        (("GET", "/queue"), 400, "BAD_FIELD"),
        (("GET", "/queue", None, {"queue": "a b"}), 400, "BAD_NAME"),
        (("GET", "/queues", None, {"limit": "many"}), 400, "BAD_FIELD"),
        (("GET", "/queues", None, {"sort": "size"}), 400, "BAD_FIELD"),
        (("POST", "/queues", {"queue": "q", "policies": {"colour": 1}}), 400, "BAD_FIELD"),
        (("POST", "/queues", {"queue": "q", "policies": {"timeout": -1}}), 400, "BAD_FIELD"),
        (("POST", "/queues", {"queue": "q", "policies": {"timeout": 4}}), 400, "BAD_FIELD"),
        (("PATCH", "/queue", {"policies": {"timeout": 4}}, {"queue": ""}), 400, "BAD_FIELD"),
        (("POST", "/queues", {"name": "q"}), 400, "BAD_FIELD"),
        (("PATCH", "/queue", {"policies": {}}, {"queue": "nowhere"}), 404, "Q_NOT_FOUND"),
        (("POST", "/queue/pause", {"for_s": 1, "until": "2999-01-01T00:00:00Z"}, {"queue": ""}), 400, "BAD_FIELD"),
        (("POST", "/queue/pause", {"until": "2000-01-01T00:00:00Z"}, {"queue": ""}), 400, "BAD_FIELD"),
        (("DELETE", "/queue", None, {"queue": ""}), 400, "BAD_NAME"),
    ],
)
def test_invalid_request_gets_its_status_and_code(
    tmp_path: Path, call: tuple[Any, ...], status: int, code: str
) -> None:
    ((found, answer),) = story(tmp_path, (*call, None)[:3] if len(call) < 4 else call)

    assert (found, answer["error"]["code"]) == (status, code)
    assert answer["error"]["detail"]


async def refusal(here: NodeHere, method: str, path: str, **more: Any) -> str:
    async with here.session.request(method, here.http + "/api/v1" + path, **more) as response:
        return str((await response.json())["error"]["code"])


def test_body_that_is_not_json_is_refused(tmp_path: Path) -> None:
    async def tell() -> list[str]:
        async with node_here(tmp_path / "data") as here:
            deep = b'{"queue": "q", "policies": {"timeout": ' + b"[" * 100_000
            bodies, kind = (b"{", b'{"queue": "\xff"}', deep), {"Content-Type": "application/json"}
            return [await refusal(here, "POST", "/queues", data=body, headers=kind) for body in bodies]

    assert run(tell()) == ["BAD_JSON"] * 3


def test_probes_of_a_serving_node_succeed(tmp_path: Path) -> None:
    async def tell() -> list[Any]:
        async with node_here(tmp_path / "data") as here:
            return [await here.get(path) for path in ("/livez", "/readyz", "/readyz?leader", "/")]

    live, ready, leads, front = run(tell())

    assert live == (200, "ok\n")
    assert ready == leads == (200, '{"ready":true,"serves":true}')
    assert front[0] == 200
