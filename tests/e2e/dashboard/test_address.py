"""What `wakeq serve` prints of the dashboard, and that one broker alone speaks of no cluster."""

import re
import urllib.request
from pathlib import Path

from playwright.async_api import Page, expect

from tests.helpers.brokers.node_here import NodeHere
from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.programs.dashboard import IN_A_BROWSER, told
from wakeq.client.aio import AsyncClient

pytestmark = IN_A_BROWSER
LINE_S_MAX = 30.0


def test_serve_prints_the_address_of_the_dashboard_and_nothing_of_leaders(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    try:
        broker.start()
        line = broker._lines.get(timeout=LINE_S_MAX) or ""
        url = line.removeprefix("dashboard: ").strip()
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": "text/html"})) as page:
            text = page.read().decode()
        said = broker.stderr
    finally:
        broker.kill()

    assert re.fullmatch(r"dashboard: http://127\.0\.0\.1:\d+/\n?", line)
    assert "<title>wakeq</title>" in text
    assert not re.search(r"\b(leads|leader|term|cluster)\b", said), said


def test_cluster_page_of_one_broker_speaks_of_no_term_and_leader(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> str:
        await page.goto(here.http + "/#/cluster")
        await expect(page.locator("#cluster")).to_contain_text("This broker runs alone")
        return await page.locator("#cluster").inner_text()

    assert not re.search(r"term|leader", told(tmp_path, story), re.IGNORECASE)
