"""The dashboard in a real browser: what it shows and does, how soon, on which screens, and that it never complains.

Pictures are kept beside the test's other files (pytest's tmp_path, or WAKEQ_PICTURES), to be looked at.
"""

import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.browser import Page, browser_path, browsing
from tests.helpers.node_here import NodeHere, client_of, node_here, run
from wakeq.client.aio import AsyncClient
from wakeq.config.settings import Auth
from wakeq.protocol.access import Grant, Right, digest_of
from wakeq.storage.tokens import TokenFile

SHOWS_UP_S_MAX = 1.0
PAGE_BYTES_MAX = 200_000
PATH = browser_path()

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(PATH is None, reason="there is no chromium on this machine; install it (Debian: chromium)"),
]

Story = Callable[[Page, NodeHere, AsyncClient], Awaitable[Any]]


def told(tmp_path: Path, story: Story) -> Any:
    async def tell() -> Any:
        assert PATH is not None
        async with node_here(tmp_path / "data") as here, client_of(here) as client, browsing(PATH) as page:
            await page.size(1280, 800)
            found = await story(page, here, client)
            assert page.complaints == []
            assert {url for url in page.requests if not url.startswith(("data:", "about:"))} <= {
                url for url in page.requests if url.startswith(here.http)
            }, "it asked another host"
            return found

    return run(tell())


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("WAKEQ_PICTURES", tmp_path / "pictures"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def row_of(name: str) -> str:
    rows = "[...document.querySelectorAll('#queues tbody tr')]"
    return f"{rows}.find((row) => row.cells[0].textContent.trim() === {name!r})"


def test_a_publish_shows_up_within_a_second(tmp_path: Path) -> None:
    """The best of a few: the machine has other work too."""

    async def story(page: Page, here: NodeHere, client: AsyncClient) -> list[float]:
        await page.go(here.http)
        await page.until("document.querySelector('#link').textContent === 'live'")
        taken_s = []
        for count in (1, 2, 3):
            await client.publish("orders", b"1")
            taken_s.append(await page.until(f"{row_of('orders')}?.cells[2].textContent === '{count}'"))
        return taken_s

    assert min(told(tmp_path, story)) <= SHOWS_UP_S_MAX


def test_dead_letters_are_seen_and_brought_back(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await client.create_queue("orders", max_deliveries=1)
        for number in range(3):
            await client.publish("orders", f"order {number}")
            message = await client.fetch("orders")
            await message.nack(error="no such customer" if number else "boom")
        await page.go(here.http + "/#/dead")
        await page.click("orders.dead", "#dead")
        await page.until("document.querySelectorAll('#messages tbody tr').length === 3")
        shown = await page.run("document.querySelector('#messages').innerText")
        await page.click("Redrive", "main > .tools")
        await page.until("document.querySelector('dialog').open")
        await page.run("document.querySelector('dialog input[name=error]').value = 'customer'")
        await page.click("Redrive", "dialog")
        await page.until("document.querySelector('#alerts').textContent.includes('Redriven: 2')")
        await page.until("document.querySelectorAll('#messages tbody tr').length === 1")
        return shown, [(await client.fetch("orders")).body for _ in range(2)]

    shown, back = told(tmp_path, story)

    assert "no such customer" in shown
    assert back == [b"order 1", b"order 2"]


def test_a_queue_is_paused_and_resumed_a_message_thrown_away_and_asked_why(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        uid = await client.publish("a/b c".replace(" ", "?"), "<img src=x onerror=alert(1)>")
        await page.go(here.http)
        await page.click("a/b?c", "#queues")
        await page.until("document.querySelector('#messages').textContent.includes('onerror')")
        images = await page.run("document.querySelectorAll('#messages img').length")
        await page.click("Pause", "main > .tools")
        await page.click("Pause", "dialog")
        await page.until("document.querySelector('main').innerText.includes('Paused until it is resumed')")
        await page.click("Why?", "#messages")
        await page.until("document.querySelector('dialog').innerText.includes('the queue is paused')")
        await page.press("Escape")
        await page.click("Resume", "main > .tools")
        await page.until("!document.querySelector('main').innerText.includes('Paused until')")
        await page.click("Throw away", "#messages")
        await page.click("Throw away", "dialog")
        await page.until("document.querySelector('#alerts').textContent.includes('Thrown away: 1')")
        return uid, images, await client.stats("a/b?c")

    _, images, stats = told(tmp_path, story)

    assert images == 0, "text of a message became HTML"
    assert (stats["size"], stats["moved"]) == (0, 1)


def test_an_error_is_shown_and_the_page_goes_on(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> str:
        await client.publish("orders", b"1")
        await client.create_queue("small", max_size=0)
        await page.go(here.http + "/#/queue/orders")
        await page.click("Move all", "main > .tools")
        await page.until("document.querySelector('dialog').open")
        await page.run("document.querySelector('dialog input[name=to]').value = 'small'")
        await page.click("Move", "dialog")
        await page.until("document.querySelector('#alerts .bad')")
        text = str(await page.run("document.querySelector('#alerts').textContent"))
        page.complaints = [text for text in page.complaints if "409" not in text]  # the browser's own note of it
        return text

    assert "the queue has reached its limit" in told(tmp_path, story)


def test_it_says_when_the_broker_is_gone_and_comes_back(tmp_path: Path) -> None:
    async def tell() -> None:
        assert PATH is not None
        async with browsing(PATH) as page:
            async with node_here(tmp_path / "data") as here:
                await page.go(here.http)
                await page.until("document.querySelector('#link').textContent === 'live'")
                port = int(here.http.rpartition(":")[2])
            await page.until("document.querySelector('#link').textContent.startsWith('no connection')")
            from wakeq.config.settings import Settings
            from wakeq.node.node import Node

            node = Node(Settings(data_dir=tmp_path / "data", worker_port=0, http_port=port, taskflux_port=0))
            await node.start()
            try:
                await page.until("document.querySelector('#link').textContent === 'live'")
            finally:
                await node.stop()

    run(tell())


def test_with_tokens_it_asks_for_one_and_goes_on(tmp_path: Path) -> None:
    async def tell() -> Any:
        assert PATH is not None
        tokens = tmp_path / "tokens.json"
        grant = Grant("someone", digest_of("a secret").hex(), ("*",), (Right.ADMIN,), datetime.now(UTC))
        TokenFile(tokens).change(lambda grants: (*grants, grant))
        auth = Auth(required=True, tokens_file=tokens)
        async with node_here(tmp_path / "data", auth=auth) as here, browsing(PATH) as page:
            await page.go(here.http)
            await page.until("document.querySelector('dialog').open")
            await page.run("document.querySelector('dialog input[name=token]').value = 'a secret'")
            await page.click("Go on", "dialog")
            await page.until("document.querySelector('#link').textContent === 'live'")
            await page.run("location.hash = '#/workers'")
            await page.until("document.querySelector('#workers').textContent.includes('0 of 0 connections')")
            return [text for text in page.complaints if "401" not in text], await page.run("document.cookie")

    complaints, cookie = run(tell())

    assert complaints == []
    assert cookie == ""


def test_all_of_it_can_be_reached_with_the_keyboard_and_is_named(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await client.publish("orders", b"1")
        await page.go(here.http)
        await page.until(row_of("orders"))
        seen = []
        for _ in range(12):
            await page.press("Tab")
            seen.append(await page.run("document.activeElement.textContent || document.activeElement.ariaLabel"))
        unnamed = await page.run(
            "[...document.querySelectorAll('button, a, input, [role=img], [role=region]')].filter((one) => "
            "!(one.textContent.trim() || one.ariaLabel || one.labels?.length)).length"
        )
        order = await page.run("[...document.querySelectorAll('h1')].length")
        lang = await page.run("document.documentElement.lang")
        return seen, unnamed, order, lang

    seen, unnamed, headings, lang = told(tmp_path, story)

    assert seen[:4] == ["Skip to the content", "wakeq", "Queues", "Dead letters"]
    assert "orders" in seen
    assert (unnamed, headings, lang) == (0, 1, "en")


def test_what_has_the_focus_keeps_it_while_the_figures_change(tmp_path: Path) -> None:
    """Twice a second there is news, and with it a row may get another place."""

    async def story(page: Page, here: NodeHere, client: AsyncClient) -> list[Any]:
        await client.publish_many("fuller", [b"1", b"2"])
        await client.publish("orders", b"1")
        await page.size(375, 740, phone=True)
        await page.go(here.http)
        await page.until(row_of("orders"))
        await page.run(f"{row_of('orders')}.querySelector('a').focus()")
        await page.run("document.querySelector('#queues .scroll').mark = 'kept'")
        seen = []
        for count in (2, 3, 4):  # the last one comes first
            await client.publish("orders", b"1")
            await page.until(f"{row_of('orders')}?.cells[2].textContent === '{count}'")
            seen.append(await page.run("document.activeElement.textContent"))
        first = await page.run("document.querySelector('#queues tbody tr').cells[0].textContent.trim()")
        return [seen, first, await page.run("document.querySelector('#queues .scroll').mark")]

    assert told(tmp_path, story) == [["orders"] * 3, "orders", "kept"]


def test_what_is_counted_while_a_node_follows_is_no_rate_when_it_leads_again(tmp_path: Path) -> None:
    """While it follows it knows no queues, and so no totals: what is there afterwards has not just come in."""
    looks = """
        const names = ["ready", "delayed", "leased", "bytes", "published", "acked", "released", "dead"];
        const look = (at_ms, published, error) => "data: " + JSON.stringify({
          at_ms, error, queues: [], queues_total: 0, figures: {}, cluster: {},
          totals: Object.fromEntries(names.map((name) => [name, name === "published" ? published : 0])) }) + "\\n\\n";
        const [fetched, told] = [window.fetch, look(1000, 100, "") + look(1500, 0, "it follows") + look(2000, 100, "")];
        let answers = [new Response(told)];
        window.fetch = (target, more) => !String(target).includes("/events") ? fetched(target, more)
          : answers.length ? Promise.resolve(answers.pop()) : new Promise(() => {});
        const filter = document.querySelector("#main input");
        filter.value = "orders";
        filter.dispatchEvent(new Event("input"));
    """

    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await page.go(here.http)
        await page.until("document.querySelector('#link').textContent === 'live'")
        await page.run(f"{{ {looks} }}")
        await page.until("document.querySelector('#link').textContent.startsWith('no connection')")
        return await page.run("[...document.querySelectorAll('.card')].map((card) => card.textContent)[3]")

    assert told(tmp_path, story) == "Published0 /s"


@pytest.mark.parametrize("typed", ["%", "%2", "%ff", "50%-off"])
def test_address_of_a_queue_with_a_stray_percent_sign_shows_a_page(tmp_path: Path, typed: str) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await client.create_queue(typed)
        await page.go(f"{here.http}/#/queue/{typed}")
        await page.until("document.querySelector('main').innerText.length > 20")
        return await page.run("document.querySelector('h1').textContent")

    assert told(tmp_path, story) == f"Queue {typed}"


def test_messages_show_up_by_themselves_and_the_focus_stays_where_they_go(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await client.publish("orders", b"1")
        await page.go(here.http + "/#/queue/orders")
        await page.until("document.querySelectorAll('#messages tbody tr').length === 1")
        await client.publish("orders", b"2")
        await page.until("document.querySelectorAll('#messages tbody tr').length === 2")
        await page.run("document.querySelector('#messages [aria-label^=Throw]').focus()")
        await page.press("Enter")
        await page.until("document.querySelector('dialog').open")
        asked = await page.run("document.activeElement.textContent")
        await page.click("Throw away", "dialog")
        await page.until("document.querySelectorAll('#messages tbody tr').length === 1")
        return asked, await page.run("document.querySelector('#messages').contains(document.activeElement)")

    assert told(tmp_path, story) == ("Cancel", True)


def test_every_page_fits_a_phone_and_a_desk_by_day_and_by_night(tmp_path: Path, pictures: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> list[tuple[str, int, int]]:
        await client.create_queue("mails", max_deliveries=1)
        for name in ("orders", "mails", "thumbnails", "reports.weekly", "a-queue-with-a-very-long-name-" + "x" * 60):
            await client.publish_many(name, [f'{{"number": {number}, "of": "{name}"}}' for number in range(30)])
        await client.publish("orders", b"tomorrow", delay=86_400)
        for _ in range(4):
            message = await client.fetch("mails")
            await message.nack(error="SMTP 451: try again later")
        await client.fetch_many("orders", 5)
        await here.call("POST", "/queue/pause", queue="reports.weekly")
        await page.go(here.http)
        await page.until("document.querySelectorAll('#queues tbody tr').length > 5")
        wide = []
        for name in ("queues", "queue/orders", "queue/mails.dead", "dead", "workers", "cluster", "slow"):
            for width, height, night in ((1280, 860, False), (1280, 860, True), (375, 740, False), (375, 740, True)):
                await page.size(width, height, phone=width < 500)
                await page.dark(night)
                await page.run(f"location.hash = '#/{name}'")
                await page.until("document.querySelector('main').innerText.length > 40")
                await client.publish("orders", b"more")
                await page.until("document.querySelector('#link').textContent === 'live'")
                await page.run("new Promise((go) => setTimeout(go, 60))")
                label = f"{name.replace('/', '-')}-{width}-{'night' if night else 'day'}"
                await page.picture(pictures / f"{label}.png")
                wide.append((label, await page.run("document.documentElement.scrollWidth"), width))
        return wide

    for label, found, width in told(tmp_path, story):
        assert found <= width, f"{label} is wider than its screen: {found}"


def test_on_a_phone_an_error_is_read_and_answered_without_scrolling_sideways(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> list[Any]:
        await client.create_queue("mails", max_deliveries=1)
        await client.publish("mails", "x" * 900)
        message = await client.fetch("mails")
        assert message is not None
        await message.nack(error="SMTP 451")
        await page.size(375, 740, phone=True)
        await page.go(f"{here.http}/#/queue/mails.dead")
        await page.until("[...document.querySelectorAll('tbody button')].length >= 4")
        rows = "document.querySelector('table.stacked tbody tr')"
        places = f"[...{rows}.querySelectorAll('button')].map((one) => one.getBoundingClientRect())"
        return [
            await page.run(f"{places}.every((one) => one.left >= 0 && one.right <= 375)"),
            await page.run(f"{rows}.innerText.includes('SMTP 451')"),
            await page.run(f"{rows}.getBoundingClientRect().height") < 200,
        ]

    assert told(tmp_path, story) == [True, True, True]


def test_the_dead_letters_that_are_there_are_counted_and_not_those_that_ever_were(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> list[str]:
        shown = "[...document.querySelectorAll('.card')].find((one) => one.innerText.startsWith('Dead letters'))"
        await client.publish_many("mails.dead", ["1", "2", "3"])
        await page.go(here.http)
        await page.until(f"{shown}?.innerText.includes('3')")
        await client.purge("mails.dead")
        await page.until(f"{shown}?.innerText.includes('0')")
        return []

    assert told(tmp_path, story) == []


def test_the_page_is_small_and_says_what_it_may_load(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await page.go(here.http)
        await page.until("document.querySelector('#link').textContent === 'live'")
        sizes = await page.run(
            "performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
            ".filter((one) => !one.name.includes('/api/')).map((one) => one.decodedBodySize)"
        )
        async with here.session.get(here.http, headers={"Accept": "text/html"}) as response:
            return sizes, response.headers["Content-Security-Policy"]

    sizes, policy = told(tmp_path, story)

    assert len(sizes) > 5
    assert sum(sizes) < PAGE_BYTES_MAX
    assert "default-src 'none'" in policy
