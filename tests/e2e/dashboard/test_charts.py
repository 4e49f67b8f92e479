"""The charts of the dashboard in a real browser: they show what the series say, and what somebody asks of them."""

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Page, Route, expect

from tests.helpers.brokers.node_here import NodeHere
from tests.helpers.programs.dashboard import IN_A_BROWSER, button, told
from wakeq.client.aio import AsyncClient
from wakeq.protocol.series import COUNTERS, NAMES, STATES

pytestmark = IN_A_BROWSER

# The moment of the first step; the node was down in one of them, and delivered nothing in two.
BEGAN_S = 1_700_000_000
PUBLISHED = [1.5, 2, None, 0, 3, 12]
WAITED = [0.002, None, None, None, 0.5, 90]
KNOWN = {"published": PUBLISHED, "ready": [1, 2, None, 4, 5, 1_234], "wait_p95_s": WAITED}


class Series:
    """Answers requests for series, and remembers them."""

    def __init__(self, known: dict[str, list[float | None]]) -> None:
        self.known = known
        self.asked: list[dict[str, str]] = []

    async def answer(self, route: Route) -> None:
        query = {name: value for name, (value,) in parse_qs(urlsplit(route.request.url).query).items()}
        self.asked.append(query)
        step_s, count = int(query["step"]), len(PUBLISHED)
        series = {name: self.known.get(name, [None] * count) for name in NAMES}
        at_s = [BEGAN_S + step_s * number for number in range(count)]
        await route.fulfill(json={"step_s": step_s, "at_s": at_s, "series": series})


async def open_with(page: Page, here: NodeHere, series: Series, path: str = "overview") -> None:
    """Open a page whose series come from here."""
    await page.route("**/api/v1/series*", series.answer)
    await page.goto(f"{here.http}/#/{path}")
    await expect(page.locator("#chart-work canvas")).to_be_visible()


async def drawn(page: Page, chart: str, name: str) -> Any:
    """Return the values of a line."""
    return await page.evaluate(f"document.querySelector('#chart-{chart}').series[{json.dumps(name)}]")


def key(page: Page, chart: str, label: str) -> Any:
    """Return the key of a line under its chart."""
    return page.locator(f"#chart-{chart} .key").filter(has_text=label)


@pytest.mark.parametrize("path", ["overview", "queue/orders"])
def test_charts_have_the_values_of_the_series(tmp_path: Path, path: str) -> None:
    series = Series(KNOWN)

    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await client.publish("orders", b"1")
        await open_with(page, here, series, path)
        await expect(key(page, "throughput", "Published")).to_contain_text("12.0 /s")
        await expect(key(page, "states", "Ready")).to_contain_text("1,234")
        await expect(key(page, "wait", "p95")).to_contain_text("90 s")
        await expect(page.locator("#chart-work .nothing")).to_have_text("No message was acknowledged in this time.")
        await expect(page.locator("#chart-wait .nothing")).to_be_hidden()
        return [await drawn(page, "throughput", "published"), await drawn(page, "wait", "wait_p95_s")]

    assert told(tmp_path, story) == [PUBLISHED, WAITED]
    queue = {"queue": "orders"} if path == "queue/orders" else {}
    assert series.asked[0] == queue | {"step": "10", "last_s": "1800"}


def test_range_stays_chosen_on_the_next_page(tmp_path: Path) -> None:
    series = Series(KNOWN)

    async def story(page: Page, here: NodeHere, client: AsyncClient) -> None:
        await client.publish("orders", b"1")
        await open_with(page, here, series)
        await button(page, "24 h", "#main").click()
        await expect(button(page, "24 h", "#main")).to_have_attribute("aria-pressed", "true")
        await page.evaluate("location.hash = '#/queue/orders'")
        await expect(button(page, "24 h", "#main")).to_have_attribute("aria-pressed", "true")
        await expect(page.locator("#chart-work canvas")).to_be_visible()

    told(tmp_path, story)

    day = {"step": "300", "last_s": "86400"}
    assert [series.asked[1], series.asked[-1]] == [day, day | {"queue": "orders"}]


def test_charts_are_whole_after_a_change_of_page_and_a_reload(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await open_with(page, here, Series(KNOWN))
        await page.evaluate("location.hash = '#/queues'")
        await expect(page.locator("#queues")).to_be_visible()
        await page.evaluate("location.hash = '#/overview'")
        await expect(key(page, "throughput", "Published")).to_contain_text("12.0 /s")
        again = await drawn(page, "throughput", "published")
        await page.reload()
        await expect(key(page, "throughput", "Published")).to_contain_text("12.0 /s")
        return [again, await drawn(page, "throughput", "published")]

    assert told(tmp_path, story) == [PUBLISHED, PUBLISHED]


def test_values_under_the_cursor_are_shown_for_the_mouse_and_for_keys(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> None:
        await open_with(page, here, Series(KNOWN))
        plot = page.locator("#chart-throughput .plot")
        await plot.focus()
        await page.keyboard.press("Home")
        await expect(key(page, "throughput", "Published")).to_contain_text("1.5 /s")
        # The cursor of one chart is that of all.
        await expect(key(page, "wait", "p95")).to_contain_text("2 ms")
        await page.keyboard.press("ArrowRight")
        await expect(key(page, "throughput", "Published")).to_contain_text("2.0 /s")
        await page.keyboard.press("ArrowRight")
        await expect(key(page, "throughput", "Published")).to_contain_text("–")
        await page.keyboard.press("End")
        await expect(key(page, "throughput", "Published")).to_contain_text("12.0 /s")
        over = page.locator("#chart-throughput .u-over")
        box = await over.bounding_box()
        assert box is not None
        # The newest steps are at the right end of the half hour.
        await over.hover(position={"x": box["width"] - 12, "y": 20})
        await expect(page.locator("#chart-throughput figcaption span").last).to_contain_text(":")

    told(tmp_path, story)


def test_line_is_hidden_and_shown_by_its_key(tmp_path: Path) -> None:
    shown = "document.querySelector('#chart-throughput .u-over') && uPlot.sync('wakeq').plots[0].series[1].show"

    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await open_with(page, here, Series(KNOWN))
        first = await page.evaluate(shown)
        await key(page, "throughput", "Published").focus()
        await page.keyboard.press("Enter")
        await expect(key(page, "throughput", "Published")).to_have_attribute("aria-pressed", "false")
        hidden = await page.evaluate(shown)
        await page.keyboard.press("Enter")
        await expect(key(page, "throughput", "Published")).to_have_attribute("aria-pressed", "true")
        return [first, hidden, await page.evaluate(shown)]

    assert told(tmp_path, story) == [True, False, True]


def test_charts_without_any_message_say_how_to_publish_one(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> None:
        await open_with(page, here, Series({name: [0] * len(PUBLISHED) for name in COUNTERS + STATES}))
        await expect(page.locator("#chart-throughput .nothing")).to_contain_text("wakeq pub jobs hello")
        await expect(page.locator(".empty")).to_contain_text("This broker has no messages yet")

    told(tmp_path, story)


def test_refused_series_are_explained_and_the_page_goes_on(tmp_path: Path) -> None:
    async def refuse(route: Route) -> None:
        await route.fulfill(status=403, json={"error": {"code": "FORBIDDEN", "detail": "needs a right on all queues"}})

    async def story(page: Page, here: NodeHere, client: AsyncClient) -> None:
        await page.route("**/api/v1/series*", refuse)
        await page.goto(here.http)
        await expect(page.locator("main")).to_contain_text("The charts cannot be read: needs a right on all queues")
        await expect(page.locator(".card").first).to_contain_text("Ready")

    told(tmp_path, story, ignored="403")


def test_charts_show_what_was_published_delivered_and_acknowledged(tmp_path: Path) -> None:
    """The broker's own series, from the end of its first step on, which began with the node."""

    async def shown(page: Page) -> list[int]:
        """Return how many messages each line shows; a step that a busy machine left out belongs to the next one."""
        at_s, counts = await drawn(page, "throughput", "at_s"), []
        for line in COUNTERS:
            values, before_s, total = await drawn(page, "throughput", line), None, 0.0
            for at, value in zip(at_s, values, strict=True):
                if value is not None:
                    total += value * (at - before_s) if before_s is not None else 0
                    before_s = at
            counts.append(round(total))
        return counts

    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        async with asyncio.timeout(60):
            while not (await here.call("GET", "/series"))[1]["at_s"]:
                await asyncio.sleep(0)
        await client.publish_many("orders", [b"1"] * 40)
        messages = await client.fetch_many("orders", 25)
        for message in messages[:20]:
            await message.ack()
        for message in messages[20:23]:
            await message.nack(error="boom")
        found: list[int] = []
        await page.goto(here.http)
        async with asyncio.timeout(120):
            while found != [40, 25, 20, 3]:
                # The next step ends within ten seconds.
                await page.reload()
                await expect(page.locator("#chart-work canvas")).to_be_visible()
                found = await shown(page)
        await page.goto(here.http + "/#/queue/orders")
        await expect(key(page, "states", "Ready")).to_contain_text("18")
        await expect(key(page, "states", "Leased")).to_contain_text("2")
        return [value for value in await drawn(page, "wait", "wait_p95_s") if value is not None]

    waits = told(tmp_path, story)

    assert waits
    assert all(0 <= wait < 60 for wait in waits)
