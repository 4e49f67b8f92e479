"""Screenshots: a broker under the load of a small shop, seen in a browser, in a terminal, and in a report.

    a broker, shop.py --> some minutes --> dashboard, the life of a message, `wakeq top`, the report --> docs/pictures

The broker listens on free ports, and its data go with it.  Every picture is taken for light and for dark pages.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Page, sync_playwright
from rich.console import Console

from tests.helpers.programs.browser import ARGUMENTS, browser_path
from wakeq.cli.broker.top.command import readings_of
from wakeq.cli.broker.top.measure import Measure
from wakeq.cli.broker.top.screen import TopScreen
from wakeq.client.admin import AdminClient

# So that the charts have something to show: they have a point every ten seconds.
LOAD_S = 240.0
# An error names the file of the handler, and with this it has no folder.
START = "exec(compile(open('shop.py').read(), 'shop.py', 'exec'))"
READY = re.compile(r"worker=(\S+) http=(\S+)")
WIDE, HIGH = 1280, 800
TOP_WIDTH, TOP_HEIGHT = 118, 18
SCHEMES = (("light", ""), ("dark", "-dark"))


def take_screenshots(folder: Path, load_s: float = LOAD_S) -> list[Path]:
    """Run the shop and take every picture of it."""
    path = browser_path()
    if path is None:
        raise SystemExit("there is no chromium on this machine; install it (Debian: chromium)")
    with tempfile.TemporaryDirectory(prefix="wakeq-pictures-") as data, ExitStack() as stack:
        worker, http = stack.enter_context(_broker(Path(data)))
        shutil.copy(Path(__file__).with_name("shop.py"), data)
        for role in ("work", "work", "work", "publish"):
            stack.enter_context(_program(role, worker, Path(data)))
        time.sleep(load_s)
        top = _take_top(f"http://{http}", folder)
        page = stack.enter_context(_browser(path))
        taken = _take_dashboard(page, f"http://{http}", folder)
        return [top, *taken, *_take_report(page, Path(data), folder)]


@contextmanager
def _broker(data: Path) -> Iterator[tuple[str, str]]:
    ports = ["--worker-port", "0", "--http-port", "0", "--taskflux-port", "0"]
    command = [sys.executable, "-m", "wakeq", "serve", "--data-dir", str(data / "broker"), *ports]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        ready = next(filter(None, map(READY.search, process.stdout)))
        yield ready[1], ready[2]
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _program(role: str, broker: str, folder: Path) -> Iterator[None]:
    quiet, environment = subprocess.DEVNULL, os.environ | {"WAKEQ_BROKER": broker}
    process = subprocess.Popen(
        [sys.executable, "-c", START, role], cwd=folder, env=environment, stdout=quiet, stderr=quiet
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _browser(path: str) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS, chromium_sandbox=False)
        yield browser.new_page(viewport={"width": WIDE, "height": HIGH})
        browser.close()


def _take_dashboard(page: Page, address: str, folder: Path) -> list[Path]:
    retried = _retried_message(address)
    pages = {
        "dashboard": "overview",
        "dashboard-queues": "queues",
        "dashboard-queue": "queue/mails",
        "dashboard-message": f"message/{quote(retried[0], safe='')}/{retried[1]}",
        "dashboard-workers": "workers",
    }
    taken = []
    for name, route in pages.items():
        page.goto(f"{address}/#/{route}")
        page.reload()
        # What is drawn comes with the first readings, and rates and the small lines with the following ones.
        page.wait_for_timeout(20_000 if name == "dashboard-queues" else 4_000)
        taken += _shoot(page, name, folder)
    return taken


def _shoot(page: Page, name: str, folder: Path) -> Iterator[Path]:
    for scheme, suffix in SCHEMES:
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.wait_for_timeout(500)
        path = folder / f"{name}{suffix}.png"
        page.screenshot(path=path)
        yield path


def _retried_message(address: str) -> tuple[str, str]:
    """Return queue and uid of a message that has failed until it was a dead letter."""
    with urllib.request.urlopen(f"{address}/api/v1/messages?queue=payments.capture.dead&state=ready&count=1") as answer:
        (letter,) = json.load(answer)["messages"]
    return letter["headers"]["wakeq-origin"], letter["headers"]["wakeq-origin-uid"]


def _take_top(address: str, folder: Path) -> Path:
    measure = Measure()
    with AdminClient(address.removeprefix("http://")) as client:
        for reading in islice(readings_of(client, ""), 12):
            measure.add(reading)
    console = Console(record=True, width=TOP_WIDTH, height=TOP_HEIGHT, file=Path(os.devnull).open("w"))  # noqa: SIM115
    console.print(TopScreen().draw(measure, TOP_WIDTH, TOP_HEIGHT))
    path = folder / "top.svg"
    # Without the font that the picture would load from another host.
    drawn = re.sub(r"@font-face \{.*?\}\n?", "", console.export_svg(title="wakeq top"), flags=re.DOTALL)
    path.write_text(drawn, encoding="utf-8")
    return path


def _take_report(page: Page, data: Path, folder: Path) -> list[Path]:
    out = data / "report.html"
    command = [sys.executable, "-m", "wakeq", "report", str(data / "broker"), "--out", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    page.goto(out.as_uri())
    return list(_shoot(page, "report", folder))
