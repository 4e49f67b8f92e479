"""The dashboard in a real browser: what it shows and does, how soon, on which screens, and without console errors.

Pictures are kept beside the test's other files (pytest's tmp_path, or WAKEQ_PICTURES), to be looked at.
"""

import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.async_api import Page, expect

from tests.helpers.brokers.node_here import NodeHere, node_here, run
from tests.helpers.programs.browser import DESK, PHONE, browsing
from tests.helpers.programs.dashboard import (
    IN_A_BROWSER,
    PATH,
    button,
    choose_action,
    live,
    row_count,
    row_of,
    shows_ready,
    told,
)
from wakeq.client.aio import AsyncClient
from wakeq.config.settings import Auth
from wakeq.protocol.access import Grant, Right, digest_of
from wakeq.storage.credentials import TokenFile

PAGE_BYTES_MAX = 200_000
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")

pytestmark = IN_A_BROWSER


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("WAKEQ_PICTURES", tmp_path / "pictures"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_publishes_show_up_on_the_open_page(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> None:
        await page.goto(here.http + "/#/queues")
        await live(page)
        for count in (1, 2, 3):
            await client.publish("orders", b"1")
            await shows_ready(page, "orders", count)

    told(tmp_path, story)


def test_dead_letters_are_shown_and_redriven(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await client.create_queue("orders", max_deliveries=1)
        for number in range(3):
            await client.publish("orders", f"order {number}")
            message = await client.fetch("orders")
            await message.nack(error="no such customer" if number else "boom")
        await page.goto(here.http + "/#/dead")
        await button(page, "orders.dead", "#dead").click()
        await row_count(page, 3)
        shown = await page.locator("#messages").inner_text()
        await button(page, "Redrive", "main .heading").click()
        await expect(page.locator("dialog[open]")).to_be_visible()
        await page.locator("dialog input[name=error]").fill("customer")
        await button(page, "Redrive", "dialog").click()
        await expect(page.locator("#alerts")).to_contain_text("Redriven: 2")
        await row_count(page, 1)
        return shown, [(await client.fetch("orders")).body for _ in range(2)]

    shown, back = told(tmp_path, story)

    assert "no such customer" in shown
    assert back == [b"order 1", b"order 2"]


def test_queue_page_pauses_resumes_deletes_and_explains(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        uid = await client.publish("a/b c".replace(" ", "?"), "<img src=x onerror=alert(1)>")
        await page.goto(here.http + "/#/queues")
        await button(page, "a/b?c", "#queues").click()
        await expect(page.locator("#messages")).to_contain_text("onerror")
        images = await page.locator("#messages img").count()
        await button(page, "Pause", "main .heading").click()
        await button(page, "Pause", "dialog").click()
        await expect(page.locator("main")).to_contain_text("Paused until it is resumed", use_inner_text=True)
        await choose_action(page, uid, "Why?")
        await expect(page.locator("dialog")).to_contain_text("the queue is paused", use_inner_text=True)
        await page.keyboard.press("Escape")
        await button(page, "Resume", "main .heading").click()
        await expect(page.locator("main")).not_to_contain_text("Paused until", use_inner_text=True)
        await choose_action(page, uid, "Delete")
        await button(page, "Delete", "dialog").click()
        await expect(page.locator("#alerts")).to_contain_text("Deleted: 1")
        return uid, images, await client.stats("a/b?c")

    _, images, stats = told(tmp_path, story)

    assert images == 0, "text of a message became HTML"
    assert (stats["size"], stats["moved"]) == (0, 1)


def test_error_is_shown_and_the_page_keeps_working(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> str:
        await client.publish("orders", b"1")
        await client.create_queue("small", max_size=0)
        await page.goto(here.http + "/#/queue/orders")
        await button(page, "Move all", "main .heading").click()
        await expect(page.locator("dialog[open]")).to_be_visible()
        await page.locator("dialog input[name=to]").fill("small")
        await button(page, "Move", "dialog").click()
        await page.locator("#alerts .bad").wait_for()
        return await page.locator("#alerts").inner_text()

    assert "the queue has reached its limit" in told(tmp_path, story, ignored="409")  # the browser's own note of it


def test_page_shows_when_the_broker_is_gone_and_recovers(tmp_path: Path) -> None:
    async def tell() -> None:
        assert PATH is not None
        async with browsing(PATH) as (page, _):
            async with node_here(tmp_path / "data") as here:
                await page.goto(here.http)
                await live(page)
                port = int(here.http.rpartition(":")[2])
            await expect(page.locator("#link")).to_have_text(re.compile("^no connection"))
            from wakeq.config.settings import Settings
            from wakeq.node.node import Node

            node = Node(Settings(data_dir=tmp_path / "data", worker_port=0, http_port=port, taskflux_port=0))
            await node.start()
            try:
                await live(page)
            finally:
                await node.stop()

    run(tell())


@asynccontextmanager
async def guarded(tmp_path: Path) -> AsyncIterator[NodeHere]:
    """Run a node that requires tokens and knows one."""
    tokens = tmp_path / "tokens.json"
    grant = Grant("someone", digest_of("a secret").hex(), ("*",), (Right.ADMIN,), datetime.now(UTC))
    TokenFile(tokens).change(lambda grants: (*grants, grant))
    async with node_here(tmp_path / "data", auth=Auth(required=True, tokens_file=tokens)) as here:
        yield here


async def sign_in(page: Page, token: str) -> None:
    """Fill in the question for a token."""
    await page.locator("dialog[open] input[name=token]").fill(token)
    await button(page, "Sign in", "dialog").click()


def test_page_asks_for_a_token_where_one_is_required(tmp_path: Path) -> None:
    async def tell() -> Any:
        assert PATH is not None
        async with guarded(tmp_path) as here, browsing(PATH) as (page, heard):
            await page.goto(here.http)
            await sign_in(page, "a secret")
            await live(page)
            await page.evaluate("location.hash = '#/workers'")
            await expect(page.locator("#workers")).to_contain_text("No worker is connected")
            return [text for text in heard.complaints if "401" not in text], await page.evaluate("document.cookie")

    complaints, cookie = run(tell())

    assert complaints == []
    assert cookie == ""


def test_wrong_token_is_answered_in_words(tmp_path: Path, pictures: Path) -> None:
    async def tell() -> None:
        assert PATH is not None
        async with guarded(tmp_path) as here, browsing(PATH) as (page, _):
            await page.goto(here.http)
            await expect(page.locator("dialog[open]")).to_contain_text("This broker requires a token")
            await sign_in(page, "another")
            await expect(page.locator("dialog[open]")).to_contain_text("does not accept this token")
            await page.screenshot(path=pictures / "wrong-token.png")
            await sign_in(page, "a secret")
            await live(page)

    run(tell())


def test_sign_out_forgets_the_token(tmp_path: Path, pictures: Path) -> None:
    async def tell() -> None:
        assert PATH is not None
        async with guarded(tmp_path) as here, browsing(PATH) as (page, _):
            await page.goto(here.http)
            await expect(page.locator("#sign-out")).to_be_hidden()
            await sign_in(page, "a secret")
            await live(page)
            await page.locator("#sign-out").click()
            await expect(page.locator("dialog[open]")).to_contain_text("This broker requires a token")
            await page.keyboard.press("Escape")
            await expect(page.locator("#banner")).to_contain_text("You are signed out")
            await expect(page.locator("main")).to_be_hidden()
            assert await page.evaluate("sessionStorage.length") == 0
            await page.screenshot(path=pictures / "signed-out.png")
            await button(page, "Sign in", "#banner").click()
            await sign_in(page, "a secret")
            await live(page)

    run(tell())


# A stream of readings that sends one and stays open.
ONE_READING = """
    const fetched = window.fetch;
    window.fetch = (target, more) => !String(target).includes("/events") ? fetched(target, more)
      : Promise.resolve(new Response(new ReadableStream({
          start: (stream) => stream.enqueue(new TextEncoder().encode("data: " + JSON.stringify(%s) + "\\n\\n")) })));
"""


def test_follower_shows_a_link_to_the_leader_and_no_zeros(tmp_path: Path, pictures: Path) -> None:
    reading = {
        "at_ms": 1000, "error": "node 2 leads; connect to it", "code": "NOT_LEADER", "leader_http": "10.0.0.2:8080",
        "queues": [], "queues_total": 0, "figures": {}, "cluster": {}, "totals": {},
    }  # fmt: skip

    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await page.add_init_script(ONE_READING % json.dumps(reading))
        await page.goto(here.http + "/#/queues")
        link = page.locator("#banner").get_by_role("link")
        await expect(link).to_have_text("Open the leader's dashboard at 10.0.0.2:8080")
        await page.screenshot(path=pictures / "follower.png")
        return await link.get_attribute("href"), await page.locator("main").is_visible()

    assert told(tmp_path, story) == ("http://10.0.0.2:8080/#/queues", False)


def test_controls_are_named_and_reachable_by_keyboard(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await client.publish("orders", b"1")
        await page.goto(here.http + "/#/queues")
        await row_of(page, "orders").wait_for()
        seen = []
        for _ in range(24):
            await page.keyboard.press("Tab")
            seen.append(await page.evaluate("document.activeElement.textContent || document.activeElement.ariaLabel"))
        unnamed = await page.evaluate(
            "[...document.querySelectorAll('button, a, input, textarea, [role=img], [role=region]')].filter((one) => "
            "!(one.textContent.trim() || one.ariaLabel || one.labels?.length)).length"
        )
        order = await page.locator("h1").count()
        lang = await page.evaluate("document.documentElement.lang")
        return seen, unnamed, order, lang

    seen, unnamed, headings, lang = told(tmp_path, story)

    assert seen[:6] == ["Skip to the content", "wakeq", "Publish", "Overview", "Queues", "Dead letters"]
    assert "orders" in seen
    assert (unnamed, headings, lang) == (0, 1, "en")


def test_focus_stays_while_the_figures_change(tmp_path: Path) -> None:
    """Twice a second there is news, and with it a row may get another place."""

    async def story(page: Page, here: NodeHere, client: AsyncClient) -> list[Any]:
        await client.publish_many("fuller", [b"1", b"2"])
        await client.publish("orders", b"1")
        await page.goto(here.http + "/#/queues")
        await row_of(page, "orders").wait_for()
        await row_of(page, "orders").get_by_role("link").focus()
        await page.evaluate("document.querySelector('#queues .scroll').mark = 'kept'")
        seen = []
        for count in (2, 3, 4):  # the last one comes first
            await client.publish("orders", b"1")
            await shows_ready(page, "orders", count)
            seen.append(await page.evaluate("document.activeElement.textContent"))
        first = await page.locator("#queues tbody td").first.inner_text()
        return [seen, first, await page.evaluate("document.querySelector('#queues .scroll').mark")]

    assert told(tmp_path, story, phone=True) == [["orders"] * 3, "orders", "kept"]


def test_counts_of_a_followers_time_are_no_rate_when_it_leads_again(tmp_path: Path) -> None:
    """A follower knows no queues and no totals; the messages that it shows as a leader are not new."""
    looks = """
        const names = ["ready", "delayed", "leased", "bytes", "published", "acked", "released", "dead", "letters"];
        const look = (at_ms, published, error) => "data: " + JSON.stringify({
          at_ms, error, queues: [], queues_found: 0, queues_total: 0, figures: {}, cluster: {},
          totals: Object.fromEntries(names.map((name) => [name, name === "published" ? published : 0])) }) + "\\n\\n";
        const [fetched, told] = [window.fetch, look(1000, 100, "") + look(1500, 0, "it follows") + look(2000, 100, "")];
        let answers = [new Response(told)];
        window.fetch = (target, more) => !String(target).includes("/events") ? fetched(target, more)
          : answers.length ? Promise.resolve(answers.pop()) : new Promise(() => {});
        location.hash = "#/overview";
    """

    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await page.goto(here.http + "/#/queues")
        await live(page)
        await page.evaluate(f"{{ {looks} }}")
        await expect(page.locator("#link")).to_have_text(re.compile("^no connection"))
        return await page.locator(".card").nth(4).text_content()

    assert told(tmp_path, story) == "Published0 /s"


@pytest.mark.parametrize("typed", ["%", "%2", "%ff", "50%-off"])
def test_queue_address_with_a_stray_percent_sign_shows_a_page(tmp_path: Path, typed: str) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await client.create_queue(typed)
        await page.goto(f"{here.http}/#/queue/{typed}")
        await expect(page.locator("main")).to_contain_text(re.compile(".{21}", re.DOTALL), use_inner_text=True)
        return await page.locator("h1").text_content()

    assert told(tmp_path, story) == f"Queue {typed}"


def test_messages_appear_without_a_reload_and_keep_the_focus(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await client.publish("orders", b"1")
        await page.goto(here.http + "/#/queue/orders")
        await row_count(page, 1)
        await client.publish("orders", b"2")
        await row_count(page, 2)
        await page.locator("#messages button.menu").first.focus()
        await page.keyboard.press("Enter")
        await page.keyboard.press("ArrowUp")
        await page.keyboard.press("Enter")
        await expect(page.locator("dialog[open]")).to_be_visible()
        asked = await page.evaluate("document.activeElement.textContent")
        await button(page, "Delete", "dialog").click()
        await row_count(page, 1)
        return asked, await page.evaluate("document.querySelector('#messages').contains(document.activeElement)")

    assert told(tmp_path, story) == ("Cancel", True)


@pytest.mark.parametrize("phone", [True, False], ids=["phone", "desk"])
def test_pages_fit_phone_and_desk_in_light_and_dark(tmp_path: Path, pictures: Path, phone: bool) -> None:
    width = (PHONE if phone else DESK)["width"]

    async def story(page: Page, here: NodeHere, client: AsyncClient) -> list[tuple[str, int]]:
        await client.create_queue("mails", max_deliveries=1)
        for name in ("orders", "mails", "thumbnails", "reports.weekly", "a-queue-with-a-very-long-name-" + "x" * 60):
            await client.publish_many(name, [f'{{"number": {number}, "of": "{name}"}}' for number in range(30)])
        await client.publish("orders", b"tomorrow", delay=86_400)
        for _ in range(4):
            message = await client.fetch("mails")
            await message.nack(error="SMTP 451: try again later")
        await client.fetch_many("orders", 5)
        await here.call("POST", "/queue/pause", queue="reports.weekly")
        await page.goto(here.http + "/#/queues")
        await page.locator("#queues tbody tr").nth(5).wait_for()
        wide = []
        pages = (
            "overview",
            "queues",
            "queue/orders",
            "queue/mails.dead",
            "dead",
            "workers",
            "recurring",
            "cluster",
            "slow",
        )
        for name in pages:
            for scheme in SCHEMES:
                await page.emulate_media(color_scheme=scheme)
                await page.evaluate(f"location.hash = '#/{name}'")
                await expect(page.locator("main")).to_contain_text(re.compile(".{41}", re.DOTALL), use_inner_text=True)
                await client.publish("orders", b"more")
                await live(page)
                await page.evaluate("new Promise((go) => setTimeout(go, 60))")
                label = f"{name.replace('/', '-')}-{width}-{scheme}"
                await page.screenshot(path=pictures / f"{label}.png")
                wide.append((label, await page.evaluate("document.documentElement.scrollWidth")))
        return wide

    for label, found in told(tmp_path, story, phone=phone):
        assert found <= width, f"{label} is wider than its screen: {found}"


def test_error_on_a_phone_needs_no_sideways_scrolling(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> list[Any]:
        await client.create_queue("mails", max_deliveries=1)
        await client.publish("mails", "x" * 900)
        message = await client.fetch("mails")
        assert message is not None
        await message.nack(error="SMTP 451")
        await page.goto(f"{here.http}/#/queue/mails.dead")
        await page.locator("tbody button").first.wait_for()
        rows = "document.querySelector('table.stacked tbody tr')"
        places = f"[...{rows}.querySelectorAll('button')].map((one) => one.getBoundingClientRect())"
        return [
            await page.evaluate(f"{places}.every((one) => one.left >= 0 && one.right <= 375)"),
            await page.evaluate(f"{rows}.innerText.includes('SMTP 451')"),
            await page.evaluate(f"{rows}.getBoundingClientRect().height") < 200,
        ]

    assert told(tmp_path, story, phone=True) == [True, True, True]


def test_dead_letter_count_is_of_present_ones_only(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> list[str]:
        shown = page.locator(".card").filter(has_text=re.compile("^Dead letters"))
        await client.publish_many("mails.dead", ["1", "2", "3"])
        await page.goto(here.http)
        await expect(shown).to_contain_text("3")
        await client.purge("mails.dead")
        await expect(shown).to_contain_text("0")
        return []

    assert told(tmp_path, story) == []


def test_page_is_small_and_restricts_what_it_may_load(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await page.goto(here.http)
        await live(page)
        sizes = await page.evaluate(
            "performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
            ".filter((one) => !one.name.includes('/api/')).map((one) => one.decodedBodySize)"
        )
        async with here.session.get(here.http, headers={"Accept": "text/html"}) as response:
            return sizes, response.headers["Content-Security-Policy"]

    sizes, policy = told(tmp_path, story)

    assert len(sizes) > 5
    assert sum(sizes) < PAGE_BYTES_MAX
    assert "default-src 'none'" in policy
