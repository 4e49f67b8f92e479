"""Dashboard: a node with its dashboard in a browser, and what tests look for on every page.

told(tmp_path, story): runs the story with the page, the node and a client; the page must not complain
"""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from tests.helpers.brokers.node_here import NodeHere, client_of, node_here, run
from tests.helpers.programs.browser import browser_path, browsing
from wakeq.client.aio import AsyncClient

PATH = browser_path()

IN_A_BROWSER = [
    pytest.mark.long,
    pytest.mark.skipif(PATH is None, reason="there is no chromium on this machine; install it (Debian: chromium)"),
]

Story = Callable[[Page, NodeHere, AsyncClient], Awaitable[Any]]


def told(tmp_path: Path, story: Story, *, phone: bool = False, ignored: str | None = None) -> Any:
    """Run a story of a page; it must not complain, but for what has these words in it."""

    async def tell() -> Any:
        assert PATH is not None
        async with (
            node_here(tmp_path / "data") as here,
            client_of(here) as client,
            browsing(PATH, phone=phone) as (page, heard),
        ):
            found = await story(page, here, client)
            assert [text for text in heard.complaints if ignored is None or ignored not in text] == []
            asked = [url for url in heard.requests if not url.startswith(("data:", "about:"))]
            assert asked
            assert [url for url in asked if not url.startswith(here.http)] == [], "it asked another host"
            return found

    return run(tell())


def row_of(page: Page, name: str) -> Locator:
    """Return the row of a queue among all queues."""
    return page.locator("#queues tbody tr").filter(has=page.get_by_role("link", name=name, exact=True))


async def shows_ready(page: Page, name: str, count: int) -> None:
    """Wait until a queue is said to have so many ready messages."""
    await row_of(page, name).locator("td").nth(3).filter(has_text=re.compile(f"^{count}$")).wait_for()


def button(page: Page, text: str, within: str) -> Locator:
    """Return the first button or link that says just this."""
    return page.locator(within).locator("button, a").and_(page.get_by_text(text, exact=True)).first


async def live(page: Page) -> None:
    """Wait until the page has the figures of its broker."""
    await expect(page.locator("#link")).to_have_text("live")


async def row_count(page: Page, count: int) -> None:
    """Wait until so many messages are shown."""
    await expect(page.locator("#messages tbody tr")).to_have_count(count)


async def choose_action(page: Page, uid: str, text: str) -> None:
    """Open the menu of a message and choose from it."""
    await page.get_by_label(f"Actions on {uid}").click()
    await page.locator("#menu").get_by_text(text, exact=True).click()
