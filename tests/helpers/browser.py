"""Browser: a real Chromium without a window, driven by its own protocol (CDP) over a websocket.

    with a page: go, run JavaScript, wait until it says yes, press keys, take a picture; what it complained of is kept

Nothing but the browser is needed: no driver, no package.  It ends with the block.
"""

import asyncio
import base64
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

START_S_MAX = 30.0
WAIT_S_MAX = 15.0
LOOK_EVERY_S = 0.03


def browser_path() -> str | None:
    """Return the browser of this machine, if it has one; $BROWSER may name it."""
    found = (shutil.which(name) for name in (os.environ.get("BROWSER", ""), "chromium", "google-chrome") if name)
    return next((path for path in found if path), None)


class Page:
    """One page.  `complaints` are errors of the console, of scripts, and answers of HTTP that are none."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._socket = socket
        self._next = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._reader = asyncio.create_task(self._read())

    async def begin(self) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.send(f"{domain}.enable")

    async def send(self, method: str, **params: Any) -> Any:
        """Give a command of the protocol; return what it answers."""
        self._next += 1
        answer = self._waiting[self._next] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._next, "method": method, "params": params})
        return await asyncio.wait_for(answer, WAIT_S_MAX)

    async def _read(self) -> None:
        async for message in self._socket:
            event = json.loads(message.data)
            if "id" in event:
                waiting = self._waiting.pop(event["id"], None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(event.get("result", event))
            else:
                self._note(event["method"], event["params"])

    def _note(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.complaints.append(details.get("exception", {}).get("description", details["text"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(str([argument.get("value") for argument in params["args"]]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])

    # --- what a test does ---

    async def go(self, url: str) -> None:
        await self.send("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """Run JavaScript in the page; return its value."""
        answer = await self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True
        )
        if "error" in answer:  # the page was being exchanged for another
            return None
        if "exceptionDetails" in answer:
            raise AssertionError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    async def until(self, condition: str, within_s: float = WAIT_S_MAX) -> float:
        """Wait until JavaScript says yes; return how long that took."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while not await self.run(f"(() => {{ try {{ return Boolean({condition}); }} catch {{ return false; }} }})()"):
            if loop.time() - began_s > within_s:
                shown = await self.run("document.body.innerText")
                raise AssertionError(f"{condition} is still not so; complaints {self.complaints}; shown:\n{shown}")
            await asyncio.sleep(LOOK_EVERY_S)
        return loop.time() - began_s

    async def click(self, text: str, within: str = "body") -> None:
        """Press the button or link that says this."""
        where = f"[...document.querySelector({within!r}).querySelectorAll('button, a')]"
        await self.until(f"{where}.some((one) => one.textContent === {text!r} && !one.disabled)")
        await self.run(f"{where}.find((one) => one.textContent === {text!r} && !one.disabled).click()")

    async def press(self, key: str) -> None:
        """Press a key: Tab, Enter, Escape."""
        code = {"Tab": 9, "Enter": 13, "Escape": 27}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            more = text if kind == "keyDown" else {}
            await self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)

    async def size(self, width: int, height: int, *, phone: bool = False) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone
        )

    async def dark(self, on: bool) -> None:
        value = "dark" if on else "light"
        await self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    async def picture(self, path: Path) -> None:
        answer = await self.send("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))


@asynccontextmanager
async def browsing(path: str) -> AsyncIterator[Page]:
    """Start a browser and open an empty page in it."""
    profile = Path(tempfile.mkdtemp(prefix="wakeq-browser-"))
    arguments = (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-extensions", "--disable-background-networking", "--remote-debugging-port=0",
        "--remote-allow-origins=*", f"--user-data-dir={profile}", "about:blank",
    )  # fmt: skip
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(path, *arguments, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        port = await _port_of(profile / "DevToolsActivePort")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as response:
                pages = [page for page in await response.json() if page["type"] == "page"]
            async with session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                await page.begin()
                yield page
                page._reader.cancel()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        await process.wait()
        shutil.rmtree(profile, ignore_errors=True)


async def _port_of(file: Path) -> int:
    async with asyncio.timeout(START_S_MAX):
        while not (file.exists() and file.read_text().count("\n")):
            await asyncio.sleep(LOOK_EVERY_S)
    return int(file.read_text().splitlines()[0])
