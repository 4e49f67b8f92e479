"""The page of queues in a real browser: sorting, filtering, status, and many queues."""

import re
from pathlib import Path
from typing import Any

from playwright.async_api import Page, expect

from tests.helpers.brokers.node_here import NodeHere
from tests.helpers.programs.dashboard import IN_A_BROWSER, button, row_of, told
from wakeq.client.aio import AsyncClient

pytestmark = IN_A_BROWSER


async def names(page: Page) -> list[str]:
    """Return the queues that are shown, in their order."""
    return [name.strip() for name in await page.locator("#queues tbody td:first-child").all_inner_texts()]


async def shows(page: Page, *wanted: str) -> None:
    """Wait until just these queues are shown, in this order."""
    await expect(page.locator("#queues tbody td:first-child")).to_have_text(list(wanted))


def status_of(page: Page, name: str) -> Any:
    return row_of(page, name).locator(".badge")


def test_columns_sort_in_both_directions(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> None:
        await client.publish_many("b", ["1", "2"])
        await client.publish("c", b"1", delay=999)
        await client.publish_many("a", ["1", "2", "3"])
        await client.fetch("b")
        await page.goto(here.http + "/#/queues")
        await shows(page, "a", "b", "c", "(default)")
        await button(page, "Leased", "#queues").click()
        await shows(page, "b", "(default)", "a", "c")
        await button(page, "Queue", "#queues").click()
        await shows(page, "(default)", "a", "b", "c")
        await expect(page.locator("#queues th[aria-sort]")).to_have_attribute("aria-sort", "ascending")
        await button(page, "Queue", "#queues").click()
        await shows(page, "c", "b", "a", "(default)")
        await expect(page.locator("#queues th[aria-sort]")).to_have_attribute("aria-sort", "descending")
        # The order is still chosen when the page comes again.
        await page.evaluate("location.hash = '#/cluster'")
        await expect(page.locator("#cluster")).to_be_visible()
        await page.evaluate("location.hash = '#/queues'")
        await shows(page, "c", "b", "a", "(default)")

    told(tmp_path, story)


def test_filter_matches_anywhere_and_says_when_nothing_matches(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> None:
        for name in ("eu.mail", "us.Mail", "orders"):
            await client.publish(name, b"1")
        await page.goto(here.http + "/#/queues")
        await page.locator("#main input[type=search]").fill("mail")
        await shows(page, "eu.mail", "us.Mail")
        await expect(page.locator("#queues caption")).to_contain_text("2 of 4 queues")
        await page.locator("#main input[type=search]").fill("maile")
        await expect(page.locator("#queues tbody")).to_contain_text("No queue has “maile” in its name.")
        await button(page, "Clear the filter", "#queues").click()
        await expect(page.locator("#queues tbody tr")).to_have_count(4)

    told(tmp_path, story)


def test_switch_hides_queues_of_dead_letters(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> None:
        await client.publish("mails", b"1")
        await client.publish("mails.dead", b"2")
        await page.goto(here.http + "/#/queues")
        await shows(page, "mails", "mails.dead", "(default)")
        await page.get_by_label("Hide dead-letter queues").check()
        await shows(page, "mails", "(default)")
        await page.get_by_label("Hide dead-letter queues").uncheck()
        await shows(page, "mails", "mails.dead", "(default)")

    told(tmp_path, story)


def test_status_says_what_a_queue_needs(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> None:
        for name in ("forgotten", "paused", "worked", "subscribed", "paused.dead", "growing"):
            await client.publish(name, b"1")
        await here.call("POST", "/queue/pause", queue="paused")
        await client.fetch("worked")
        await client.subscribe("subscribed")
        await client.subscribe("growing")
        await page.goto(here.http + "/#/queues")
        await expect(status_of(page, "forgotten")).to_have_text("no worker")
        await expect(status_of(page, "forgotten")).to_have_class(re.compile(r"\bbad\b"))
        await expect(status_of(page, "paused")).to_have_text("paused")
        await expect(status_of(page, "worked")).to_have_text("working")
        await expect(status_of(page, "subscribed")).to_have_text("waiting")
        await expect(status_of(page, "paused.dead")).to_have_text("dead letters")
        await expect(status_of(page, "(default)")).to_have_text("empty")
        await client.publish_many("growing", ["1"] * 50)
        await expect(status_of(page, "growing")).to_have_text("growing")

    told(tmp_path, story)


def test_overview_names_the_queues_that_need_somebody(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> list[str]:
        for name in ("forgotten", "mails.dead"):
            await client.publish(name, b"1")
        await page.goto(here.http)
        await expect(page.locator("#attention tbody tr")).to_have_count(2)
        return await page.locator("#attention tbody td:first-child").all_inner_texts()

    assert told(tmp_path, story) == ["mails.dead", "forgotten"]


def test_queues_beyond_one_page_are_shown_page_by_page(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        for number in range(120):
            await client.create_queue(f"q{number:03}")
        await page.goto(here.http + "/#/queues")
        await button(page, "Queue", "#queues").click()
        await expect(page.locator(".pager")).to_contain_text("1 to 50 of 121")
        await button(page, "Next", ".pager").click()
        await expect(page.locator(".pager")).to_contain_text("51 to 100 of 121")
        await button(page, "Next", ".pager").click()
        await expect(page.locator(".pager")).to_contain_text("101 to 121 of 121")
        await expect(button(page, "Next", ".pager")).to_be_disabled()
        await expect(page.locator("#queues tbody tr")).to_have_count(21)
        last = (await names(page))[-1]
        await page.locator("#main input[type=search]").fill("q11")
        await expect(page.locator("#queues tbody tr")).to_have_count(10)
        return last

    assert told(tmp_path, story) == "q119"
