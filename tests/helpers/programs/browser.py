"""Browser: the Chromium of this machine without a window, driven by Playwright.

    async with browsing(PATH) as (page, heard): the page is Playwright's, `heard` keeps what was complained of

The browser is the one that the machine has: none is ever fetched.  It ends with the block.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from playwright.async_api import ConsoleMessage, Page, ViewportSize, async_playwright, expect

ARGUMENTS = (
    "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
)  # fmt: skip
DESK, PHONE = ViewportSize(width=1280, height=800), ViewportSize(width=375, height=740)
COMPLAINTS = ("error", "warning", "assert")
WAIT_MS_MAX = 15_000

expect.set_options(timeout=WAIT_MS_MAX)


def browser_path() -> str | None:
    """Return the browser of this machine, if it has one; $BROWSER may name it."""
    found = (shutil.which(name) for name in (os.environ.get("BROWSER", ""), "chromium", "google-chrome") if name)
    return next((path for path in found if path), None)


@dataclass
class Heard:
    """Errors of the console, of scripts, and answers of HTTP that are none; and the address of every request."""

    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def listen(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", self._note)

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in COMPLAINTS:
            self.complaints.append(f"{message.text} {message.location['url']}")


@asynccontextmanager
async def browsing(path: str, *, phone: bool = False) -> AsyncIterator[tuple[Page, Heard]]:
    """Start a browser and open an empty page in it."""
    heard = Heard()
    async with async_playwright() as playwright:
        # For root Chromium has no sandbox, and our pages need none.
        chromium = playwright.chromium.launch(executable_path=path, args=ARGUMENTS, chromium_sandbox=False)
        async with await chromium as browser:
            page = await browser.new_page(viewport=PHONE if phone else DESK, is_mobile=phone)
            page.set_default_timeout(WAIT_MS_MAX)
            heard.listen(page)
            yield page, heard
