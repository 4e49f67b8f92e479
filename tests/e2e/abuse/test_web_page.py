"""A page of another site in a real browser publishes and changes nothing, whatever it sends to a broker's ports.

The page is served from an address of its own; forms, fetch without CORS, beacons and WebSockets are all that it has.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from playwright.async_api import Page, expect

from tests.helpers.brokers.node_here import NodeHere, client_of, node_here, run
from tests.helpers.programs.browser import browser_path, browsing
from wakeq.client.aio import AsyncClient
from wakeq.net.tcp_door import TcpDoor
from wakeq.protocol.wire.taskflux.codec import encode
from wakeq.protocol.wire.taskflux.commands import ACK, AuthorizationRequest, BootstrapRequest, Enqueue
from wakeq.protocol.wire.taskflux.dialects import SPEC

PATH = browser_path()
QUEUE = "orders"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(PATH is None, reason="there is no chromium on this machine; install it (Debian: chromium)"),
]

FORGED = "".join(
    json.dumps(command) + "\n"
    for command in (
        {"cmd": "PUB", "qname": QUEUE, "message": "forged"},
        {"cmd": "PURGE", "qname": QUEUE},
        {"cmd": "DROP", "qname": QUEUE},
    )
)
FLUX = encode([AuthorizationRequest(), BootstrapRequest(1, 0, 0), Enqueue(QUEUE, 0, b"forged"), ACK], SPEC)


PUBLIC = {"Content-Security-Policy": "treat-as-public-address"}  # as if it did not come from this machine


@asynccontextmanager
async def other_site(headers: dict[str, str]) -> AsyncIterator[str]:
    """Serve an empty page of another site."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<!doctype html><title>a page</title>", content_type="text/html", headers=headers)

    app = web.Application()
    app.router.add_get("/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://localhost:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def posts_a_form(page: Page, url: str, text: str) -> None:
    """Post what a form of text/plain makes of a field: its name, `=`, its value."""
    name, _, value = text.partition("=")
    await page.evaluate(
        f"""new Promise((done) => {{
            const frame = document.body.appendChild(document.createElement('iframe'));
            frame.name = 'frame' + Math.random();
            const form = document.body.appendChild(document.createElement('form'));
            Object.assign(form, {{method: 'post', enctype: 'text/plain', target: frame.name}});
            form.action = {json.dumps(url)};
            const field = form.appendChild(document.createElement('textarea'));
            field.name = {json.dumps(name)};
            field.value = {json.dumps(value)};
            frame.onload = () => done(true);
            setTimeout(done, 1000);
            form.submit();
        }})"""
    )


async def fetches(page: Page, url: str, body: str) -> None:
    """Post it by fetch, which does not ask first, and by a beacon; nobody reads the answer."""
    await page.evaluate(f"navigator.sendBeacon({json.dumps(url)}, {body})")
    fetched = f"fetch({json.dumps(url)}, {{method: 'POST', mode: 'no-cors', body: {body}}})"
    await page.evaluate(f"{fetched}.then(() => true, () => false)")


async def opens_a_socket(page: Page, url: str) -> str:
    """Send it by WebSocket; return how that ended."""
    return str(
        await page.evaluate(
            f"""new Promise((done) => {{
                const socket = new WebSocket({json.dumps(url)});
                socket.onopen = () => {{ socket.send({json.dumps(FORGED.splitlines()[0])}); done('open'); }};
                socket.onerror = () => done('refused');
            }})"""
        )
    )


async def nothing_happened(client: AsyncClient) -> bool:
    """Return whether the queue still holds its one message and no other."""
    return bool((await client.stats(QUEUE))["size"] == 1)


@pytest.mark.parametrize(("headers", "posts_min"), [({}, 6), (PUBLIC, 3)], ids=["here", "public"])
def test_page_of_another_site_changes_nothing_at_any_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], posts_min: int
) -> None:
    heard: list[bytes] = []
    data_received = TcpDoor.data_received

    def hear(door: TcpDoor, data: bytes) -> None:  # type: ignore[type-arg]
        heard.append(data)
        data_received(door, data)

    monkeypatch.setattr(TcpDoor, "data_received", hear)

    async def story(here: NodeHere, client: AsyncClient, page: Page) -> None:
        addresses = here.node.listeners._addresses  # type: ignore[union-attr]
        await client.publish(QUEUE, "mine")
        worker, flux = f"http://{here.worker}/", f"http://{addresses['taskflux']}/"
        api = f"{here.http}/api/v1/queues/{QUEUE}"

        for text in (FORGED, "x=\n" + FORGED, "\n\n" + FORGED + "="):
            await posts_a_form(page, worker, text)
        await fetches(page, worker, json.dumps(FORGED))
        await fetches(page, worker + FORGED.splitlines()[0], json.dumps(FORGED))
        await fetches(page, flux, f"new Uint8Array({list(FLUX)})")
        for path in ("/purge", "/messages", ""):
            await posts_a_form(page, api + path, '{"message":"=","body":"forged"}')
            await fetches(page, api + path, "'{}'")
        ends = [
            await opens_a_socket(page, url)
            for url in (here.http.replace("http", "ws") + "/connect", worker.replace("http", "ws"))
        ]

        posts = [data for data in heard if data.startswith(b"POST ")]
        assert len(posts) >= posts_min, "the browser reached the ports"
        assert any(b"forged" in data for data in heard)
        assert ends == ["refused", "refused"]
        assert await nothing_happened(client)

    async def tell() -> None:
        assert PATH is not None
        async with (
            node_here(tmp_path / "data") as here,
            client_of(here) as client,
            other_site(headers) as site,
            browsing(PATH) as (page, _),
        ):
            await page.goto(site)
            await expect(page).to_have_title("a page")
            await story(here, client, page)

    run(tell())
