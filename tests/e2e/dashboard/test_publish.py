"""The form of the dashboard that publishes, in a real browser."""

from pathlib import Path
from typing import Any

from playwright.async_api import Page, expect

from tests.helpers.brokers.node_here import NodeHere
from tests.helpers.programs.dashboard import IN_A_BROWSER, button, live, told
from wakeq.client.aio import AsyncClient

pytestmark = IN_A_BROWSER


async def fill(page: Page, **fields: str) -> None:
    for name, value in fields.items():
        await page.locator(f"dialog [name={name}]").fill(value)


def test_form_publishes_a_message_with_all_its_parts(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await page.goto(here.http)
        await live(page)
        await page.locator("#publish").click()
        await fill(
            page, queue="jobs", body="a\nbody", priority="3", timeout="60", expires="900", headers="tenant: a\nkey:b:c"
        )
        await button(page, "Publish", "dialog").click()
        await expect(page.locator("#alerts")).to_contain_text("to jobs.")
        await page.locator("#alerts a").click()
        await expect(page.locator("main")).to_contain_text("a\nbody", use_inner_text=True)
        return await client.fetch("jobs")

    message = told(tmp_path, story)

    assert (message.body, message.priority, message.headers) == (b"a\nbody", 3, {"tenant": "a", "key": "b:c"})


def test_delay_of_the_form_delays_the_message(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await page.goto(here.http)
        await live(page)
        await page.locator("#publish").click()
        await fill(page, queue="jobs", body="later", delay="3600")
        await button(page, "Publish", "dialog").click()
        await expect(page.locator("#alerts")).to_contain_text("to jobs.")
        return await client.stats("jobs")

    assert told(tmp_path, story)["delayed"] == 1


def test_refused_message_stays_in_the_form_with_the_reason(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await page.goto(here.http + "/#/queue/orders")
        await live(page)
        await page.locator("#publish").click()
        await expect(page.locator("dialog [name=queue]")).to_have_value("orders")
        await fill(page, queue="two words", body="kept")
        await button(page, "Publish", "dialog").click()
        await expect(page.locator("dialog .bad")).to_contain_text("name")
        await expect(page.locator("dialog [name=body]")).to_have_value("kept")
        await fill(page, queue="orders", headers="no colon")
        await button(page, "Publish", "dialog").click()
        await expect(page.locator("dialog .bad")).to_contain_text("no colon")
        await fill(page, headers="")
        await button(page, "Publish", "dialog").click()
        await expect(page.locator("#alerts")).to_contain_text("to orders.")
        return (await client.fetch("orders")).body

    assert told(tmp_path, story, ignored="40") == b"kept"
