"""The dashboard's pages of workers and of what recurs, in a real browser, with a Worker that works.

Pictures are kept beside the test's other files (pytest's tmp_path, or WAKEQ_PICTURES), to be looked at.
"""

import asyncio
import os
import re
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.e2e.operating.test_dashboard import PATH, SCHEMES, told
from tests.helpers.brokers.node_here import NodeHere
from tests.helpers.programs.browser import DESK, PHONE
from wakeq import Worker
from wakeq.actors.queue import looking
from wakeq.client.aio import AsyncClient

PATIENCE_S = 30.0

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(PATH is None, reason="there is no chromium on this machine; install it (Debian: chromium)"),
]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("WAKEQ_PICTURES", tmp_path / "pictures"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@asynccontextmanager
async def busy_worker(
    here: NodeHere, client: AsyncClient, *, name: str = "shop.tasks:worker", queue: str = "emails"
) -> AsyncIterator[str]:
    """Run a worker that handles a message until the end of the block; give the uid."""
    worker = Worker(here.worker, concurrency=4, prefetch=0, name=name)
    begun, may_end = threading.Event(), threading.Event()

    @worker.task(queue)
    def send(to: str) -> None:
        begun.set()
        may_end.wait(PATIENCE_S)

    @worker.task("reports")
    def report() -> None: ...

    worker.schedule(report, "30 6 * * mon-fri", zone="Europe/Berlin")
    worker.schedule(report, 5400)
    uid = await client.publish(queue, {"to": "a@b.c"})
    await asyncio.to_thread(worker.start)
    try:
        assert await asyncio.to_thread(begun.wait, PATIENCE_S)
        yield uid
    finally:
        may_end.set()
        await asyncio.to_thread(worker.stop)


def test_page_shows_who_the_workers_are_and_what_they_are_busy_with(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> None:
        await page.goto(f"{here.http}/#/workers")
        await expect(page.locator("#workers")).to_contain_text("No worker is connected")
        async with busy_worker(here, client) as uid:
            await page.get_by_role("button", name="Refresh").click()
            row = page.locator("#workers tbody tr")
            await expect(row).to_have_count(1)
            await expect(row).to_contain_text(f"shop.tasks:worker{socket.gethostname()}, process {os.getpid()}")
            await expect(row).to_contain_text("emails, reports")
            await expect(row).to_contain_text("1 of 4")
            await expect(row).to_contain_text(re.compile(f"{uid} of emails for [0-9]+ s"))
            assert await row.get_by_role("link", name=uid).get_attribute("href") == f"#/message/emails/{uid}"
            # Another connection of this program publishes only.
            await expect(page.locator("details summary")).to_contain_text("only publish or look: 1")
            await expect(page.locator("#others tbody tr")).not_to_be_visible()
            await page.locator("details summary").click()
            await expect(page.locator("#others tbody tr")).to_be_visible()
        # The page follows by itself.
        await page.mouse.move(0, 0)
        await expect(page.locator("#workers")).to_contain_text("No worker is connected")

    told(tmp_path, story)


def test_page_says_that_not_all_leased_messages_were_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> None:
        async with busy_worker(here, client):
            await page.goto(f"{here.http}/#/workers")
            await expect(page.locator("#workers tbody tr")).to_contain_text("1 of 4")
            await expect(page.locator("main")).not_to_contain_text("not all were counted")
            monkeypatch.setattr(looking, "LEASES_SEEN_MAX", 0)
            await page.get_by_role("button", name="Refresh").click()
            await expect(page.locator("main")).to_contain_text("0 or more: not all were counted")
            await expect(page.locator("#workers tbody tr")).to_contain_text("not known")

    told(tmp_path, story)


def test_page_of_what_recurs_shows_each_schedule_once_with_its_workers(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> None:
        await page.goto(f"{here.http}/#/recurring")
        await expect(page.locator("#recurring")).to_contain_text("No connected worker has a schedule")
        async with busy_worker(here, client), busy_worker(here, client, name="second", queue="mails"):
            await page.get_by_role("button", name="Refresh").click()
            rows = page.locator("#recurring tbody tr")
            await expect(rows).to_have_count(2)
            hourly, daily = rows.filter(has_text="every 90 min"), rows.filter(has_text="30 6 * * mon-fri")
            await expect(daily).to_contain_text("Europe/Berlin")
            await expect(hourly).to_contain_text("reports")
            await expect(hourly).to_contain_text(re.compile(r"in \d+ (s|min)"))
            for row in (hourly, daily):
                await expect(row).to_contain_text("shop.tasks:worker")
                await expect(row).to_contain_text("second")

    told(tmp_path, story)


@pytest.mark.parametrize("phone", [False, True])
def test_pages_of_workers_fit_phone_and_desk_in_light_and_dark(tmp_path: Path, pictures: Path, phone: bool) -> None:
    width = (PHONE if phone else DESK)["width"]

    async def story(page: Page, here: NodeHere, client: AsyncClient) -> list[tuple[str, int]]:
        wide = []
        async with busy_worker(here, client), busy_worker(here, client, name="second", queue="mails"):
            await page.goto(f"{here.http}/#/workers")
            for name, place in (("workers", "#workers"), ("recurring", "#recurring")):
                for scheme in SCHEMES:
                    await page.emulate_media(color_scheme=scheme)
                    await page.evaluate(f"location.hash = '#/{name}'")
                    await expect(page.locator(f"{place} tbody tr")).to_have_count(2)
                    label = f"{name}-busy-{width}-{scheme}"
                    await page.screenshot(path=pictures / f"{label}.png")
                    wide.append((label, await page.evaluate("document.documentElement.scrollWidth")))
        return wide

    for label, found in told(tmp_path, story, phone=phone):
        assert found <= width, f"{label} is wider than its screen: {found}"
