"""The messages of a queue, and one message, in a real browser."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
from playwright.async_api import Locator, Page, expect

from tests.helpers.brokers.node_here import NodeHere
from tests.helpers.programs.dashboard import IN_A_BROWSER, button, choose_action, told
from wakeq.client.aio import AsyncClient

pytestmark = IN_A_BROWSER


def rows(page: Page) -> Locator:
    return page.locator("#messages tbody tr")


async def bodies(page: Page) -> list[str]:
    return await page.locator("#messages td.body").all_inner_texts()


async def search(page: Page, text: str) -> None:
    await page.get_by_label("Search the messages").fill(text)


def test_ready_messages_are_reached_page_by_page_in_the_order_of_delivery(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        for number in range(120):
            await client.publish("jobs", f"body {number}", priority=-number)
        await page.goto(f"{here.http}/#/queue/jobs")
        await expect(rows(page)).to_have_count(50)
        seen = [await bodies(page)]
        for first in ("body 69", "body 19"):
            await button(page, "Next", ".pages").click()
            await expect(rows(page).first).to_contain_text(first)
            seen.append(await bodies(page))
        await expect(page.locator(".pages")).to_contain_text("Messages 101 to 120")
        more = await button(page, "Next", ".pages").count()
        await button(page, "Previous", ".pages").click()
        await expect(rows(page).first).to_contain_text("body 69")
        return [one for part in seen for one in part], more

    seen, more = told(tmp_path, story)

    assert seen == [f"body {number}" for number in reversed(range(120))]
    assert more == 0


def test_tabs_show_each_state_with_its_count(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await client.publish("jobs", "is leased")
        await client.fetch("jobs")
        await client.publish_many("jobs", ["ready 1", "ready 2"])
        await client.publish("jobs", "later", delay=3_600)
        await page.goto(f"{here.http}/#/queue/jobs")
        seen = {}
        for label, count in (("Ready", 2), ("Delayed", 1), ("Leased", 1), ("All", 4)):
            await page.locator(".tabs button").filter(has_text=label).click()
            await expect(rows(page)).to_have_count(count)
            await expect(page.locator(".tabs [aria-pressed=true]")).to_have_text(f"{label} {count}")
            seen[label] = await bodies(page)
        return seen

    assert told(tmp_path, story) == {
        "Ready": ["ready 1", "ready 2"],
        "Delayed": ["later"],
        "Leased": ["is leased"],
        "All": ["is leased", "ready 1", "ready 2", "later"],
    }


def test_search_finds_a_text_anywhere_and_a_condition(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await client.publish_many("jobs", [f"number {number}" for number in range(300)])
        await client.publish("jobs", "last", headers={"tenant": "Globex"})
        await page.goto(f"{here.http}/#/queue/jobs")
        await expect(rows(page)).to_have_count(50)
        found = []
        wanted = (
            ("NUMBER 123", "number 123"),
            ("globex", "last"),
            ("body=number 7", "number 7"),
            ("uid~_0000004r", "last"),
        )
        for text, body in wanted:
            await search(page, text)
            await expect(rows(page).first).to_contain_text(body)
            await expect(rows(page)).to_have_count(1)
            await expect(page.locator(".pages")).to_contain_text("Found 1 in 301 messages")
            found += await bodies(page)
        await search(page, "nowhere")
        await expect(page.locator("#messages")).to_contain_text("Nothing found.")
        return found

    assert told(tmp_path, story) == ["number 123", "last", "number 7", "last"]


def test_wrong_condition_is_explained(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> None:
        await client.publish("jobs", "1")
        await page.goto(f"{here.http}/#/queue/jobs")
        await expect(rows(page)).to_have_count(1)
        await search(page, "priority<high")
        await expect(page.locator("#messages .bad")).to_contain_text("is not a number")

    told(tmp_path, story, ignored="400")


def test_action_is_taken_for_all_chosen_messages(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await client.publish_many("jobs", [f"body {number}" for number in range(4)])
        await page.goto(f"{here.http}/#/queue/jobs")
        await expect(rows(page)).to_have_count(4)
        for place in (1, 3):
            await rows(page).nth(place).locator("input").check()
        await expect(page.locator(".chosen")).to_contain_text("2 chosen")
        await button(page, "Move", ".chosen").click()
        await page.locator("dialog input[name=to]").fill("other")
        await button(page, "Move", "dialog").click()
        await expect(page.locator("#alerts")).to_contain_text("Moved: 2")
        await expect(rows(page)).to_have_count(2)
        await expect(page.locator(".chosen")).to_have_count(0)
        return [message.body for message in await client.fetch_many("other", 9)]

    assert told(tmp_path, story) == [b"body 1", b"body 3"]


def test_messages_that_match_a_search_are_deleted_at_once(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await client.publish_many("jobs", [f"{'drop' if number % 2 else 'keep'} {number}" for number in range(240)])
        await page.goto(f"{here.http}/#/queue/jobs")
        await expect(rows(page)).to_have_count(50)
        await search(page, "drop")
        await expect(rows(page).first).to_contain_text("drop 1")
        await page.get_by_label("Choose all of this page").check()
        await button(page, "Choose all that match drop", ".chosen").click()
        await button(page, "Delete", ".chosen").click()
        await expect(page.locator("dialog")).to_contain_text("Delete all that match drop?")
        await button(page, "Delete", "dialog").click()
        await expect(page.locator("#alerts")).to_contain_text("Deleted: 120")
        return (await client.stats("jobs"))["ready"]

    assert told(tmp_path, story) == 120


def test_menu_of_a_row_makes_a_delayed_message_due_and_releases_a_leased_one(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        leased = await client.publish("jobs", "leased")
        await client.fetch("jobs")
        delayed = await client.publish("jobs", "delayed", delay=3_600)
        await page.goto(f"{here.http}/#/queue/jobs")
        for label, uid, action in (("Delayed", delayed, "Make due"), ("Leased", leased, "Release")):
            await page.locator(".tabs button").filter(has_text=label).click()
            await choose_action(page, uid, action)
            await expect(page.locator("#messages")).to_contain_text("No messages in this state.")
        return (await client.stats("jobs"))["ready"]

    assert told(tmp_path, story) == 2


def test_page_of_a_finished_message_tells_its_life_and_shows_its_body(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        uid = await client.publish("a/b", json.dumps({"to": "ada"}), headers={"tenant": "acme"})
        message = await client.fetch("a/b")
        assert message is not None
        await message.nack(error="no such host", delay=0)
        again = await client.fetch("a/b", wait=10)
        assert again is not None
        await again.ack()
        await page.goto(f"{here.http}/#/message/a%2Fb/{uid}")
        await expect(page.locator(".life li")).to_have_count(5)
        return (
            await page.locator(".life .what").all_inner_texts(),
            await page.locator(".life .bad").all_inner_texts(),
            await page.locator("main pre").inner_text(),
            await page.locator("main table").inner_text(),
        )

    words, errors, body, headers = told(tmp_path, story)

    assert words == ["published", "delivered", "failed", "delivered", "acknowledged"]
    assert [text for text in errors if "no such host" in text]
    assert json.loads(body) == {"to": "ada"}
    assert re.search(r"tenant\s+acme", headers)


def test_page_of_a_message_follows_it_from_its_queue_to_its_dead_letter(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> Any:
        await client.create_queue("jobs", max_deliveries=1)
        uid = await client.publish("jobs", msgspec.msgpack.encode({"n": 1, "raw": b"\xff"}))
        await page.goto(f"{here.http}/#/queue/jobs")
        await page.get_by_text(uid).click()
        await expect(page.locator("main")).to_contain_text("it is ready, and next", use_inner_text=True)
        await expect(page.locator("main pre")).to_contain_text('"raw": "ff"')
        await expect(page.locator(".life")).to_contain_text("now ready")
        message = await client.fetch("jobs")
        assert message is not None
        await message.nack(error="boom")
        await expect(page.locator(".life")).to_contain_text("dead lettered")
        await page.get_by_role("link", name=re.compile("^0000.*_0")).first.click()
        await expect(page.locator("main")).to_contain_text("wakeq-origin-uid")
        await button(page, "Redrive", "main").click()
        await expect(page.locator("dialog")).to_contain_text("back to jobs (1)")
        await button(page, "Redrive", "dialog").click()
        await expect(page.locator("#alerts")).to_contain_text("Redriven: 1")
        await expect(page.locator(".life")).to_contain_text("moved")
        return (await client.stats("jobs"))["ready"]

    assert told(tmp_path, story) == 1


def test_page_of_an_unknown_message_says_so(tmp_path: Path) -> None:
    async def story(page: Page, here: NodeHere, client: AsyncClient) -> None:
        await client.publish("jobs", "1")
        await page.goto(f"{here.http}/#/message/jobs/nonsense")
        await expect(page.locator("main")).to_contain_text("is not a uid of this broker", use_inner_text=True)
        await expect(page.locator("#life")).to_contain_text("Nothing is known of its life")

    told(tmp_path, story)
