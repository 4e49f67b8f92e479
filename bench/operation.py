"""The cost of operating: a scrape of /metrics with many queues and its effect on others, a login, the dashboard's size.

    python -m bench.operation [--queues 10000] [--rounds 20]

Prints a report and keeps it as bench/results/<date>-operation.md.  The broker is a process of its own, with a directory
of its own; it asks for tokens, so a login is measured as clients have it.
"""

import argparse
import asyncio
import datetime
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import aiohttp
import uvloop

from bench import machine
from bench.peers.peer import REPOSITORY
from bench.report import table
from wakeq import AsyncClient

RESULTS = Path(__file__).parent / "results"
TOGETHER = 500  # publishes under way while the queues are made
LOGINS = 2_000  # of each kind
STILL_S = 2.0  # of pings without a scrape, to compare with
ASSET = re.compile(r'(?:src|href)="(/dashboard/[^"]+)"|from "(?:\./)?([\w.]+\.js)"')
READY = re.compile(rb"wakeq ready worker=(\S+) http=(\S+)")


class Broker(NamedTuple):
    """Where a broker is, and the token of an operator."""

    pid: int
    worker: str
    http: str
    token: str


@contextmanager
def broker_in(folder: Path) -> Iterator[Broker]:
    """Run a broker that asks for tokens."""
    wakeq, where = [sys.executable, "-m", "wakeq"], ["--data-dir", str(folder / "data")]
    made = [*wakeq, "token", "create", "bench", "--rights", "publish,fetch,admin", *where]
    token = subprocess.run(made, check=True, capture_output=True, text=True).stdout.strip()
    ports = ["--worker-port", "0", "--http-port", "0", "--taskflux-port", "0"]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen([*wakeq, "serve", "--auth", *where, *ports], stdout=subprocess.PIPE, stderr=log)
    assert process.stdout is not None
    try:
        found = READY.match(process.stdout.readline())
        if found is None:
            raise SystemExit(f"the broker did not start: {(folder / 'log').read_text()}")
        worker, http = found[1].decode(), found[2].decode()
        yield Broker(process.pid, worker, f"http://{http}", token)
    finally:
        process.kill()
        process.wait()


# --- /metrics ---------------------------------------------------------------------------------------------------------


async def make_queues(broker: Broker, queues: int) -> None:
    async with AsyncClient(broker.worker, token=broker.token) as client:
        names = [f"queue-{number:05}" for number in range(queues)]
        for start in range(0, queues, TOGETHER):
            await asyncio.gather(*[client.publish(name, b"x") for name in names[start : start + TOGETHER]])


async def longest_ping_ms(client: AsyncClient, until: asyncio.Event) -> float:
    """Ping one after the other; return how long the slowest took."""
    longest_s = 0.0
    while not until.is_set():
        began_s = time.perf_counter()
        await client.ping()
        longest_s = max(longest_s, time.perf_counter() - began_s)
    return longest_s * 1000


async def scrapes(broker: Broker, rounds: int) -> list[tuple[str, str]]:
    """Scrape again and again, while another client pings."""
    walls_ms, cpus_ms, pings_ms, size, series = [], [], [], 0, 0
    headers = {"Authorization": f"Bearer {broker.token}"}
    async with AsyncClient(broker.worker, token=broker.token) as client, aiohttp.ClientSession() as session:
        for _ in range(rounds):
            cpu_s, began_s = machine.cpu_s([broker.pid]), time.perf_counter()
            async with session.get(f"{broker.http}/metrics", headers=headers) as answer:
                text = await answer.read()
            walls_ms.append((time.perf_counter() - began_s) * 1000)
            cpus_ms.append((machine.cpu_s([broker.pid]) - cpu_s) * 1000)
            size, series = len(text), text.count(b"\nwakeq_queue_")
        still = asyncio.Event()
        asyncio.get_running_loop().call_later(STILL_S, still.set)
        alone_ms = await longest_ping_ms(client, still)
        for _ in range(rounds):
            over = asyncio.Event()
            pinging = asyncio.ensure_future(longest_ping_ms(client, over))
            scraping = await asyncio.create_subprocess_exec(  # not by this loop, which pings
                *(sys.executable, "-c", SCRAPE, f"{broker.http}/metrics", broker.token), stdout=subprocess.DEVNULL
            )
            await scraping.wait()
            over.set()
            pings_ms.append(await pinging)
    return [
        ("series of queues", f"{series:,}"),
        ("size", f"{size / 1e6:.1f} MB"),
        ("a scrape, median", f"{median(walls_ms):.0f} ms (asked: 300)"),
        ("a scrape, slowest", f"{max(walls_ms):.0f} ms"),
        ("of the broker's processor, median", f"{median(cpus_ms):.0f} ms"),
        ("the longest ping of somebody else meanwhile, median", f"{median(pings_ms):.1f} ms (asked: 20)"),
        ("the same, the worst of all", f"{max(pings_ms):.1f} ms"),
        (f"the longest ping in {STILL_S:g} s without a scrape", f"{alone_ms:.1f} ms"),
    ]


SCRAPE = """
import sys, urllib.request
path, token = sys.argv[1:]
request = urllib.request.Request(path, headers={"Authorization": f"Bearer {token}"})
urllib.request.urlopen(request).read()
"""


# --- logins -----------------------------------------------------------------------------------------------------------


async def logins(broker: Broker) -> list[tuple[str, str]]:
    """Log in with a token that differs from a known one in its last character, and with an unknown one."""
    guesses = {"wrong": broker.token[:-1] + "!", "unknown": "wakeq_" + "u" * (len(broker.token) - 6)}
    taken_us: dict[str, list[float]] = {kind: [] for kind in guesses}
    host, _, port = broker.worker.rpartition(":")
    for _ in range(LOGINS):
        for kind in random.sample(list(guesses), 2):  # whatever else the machine does meets both alike
            reader, writer = await asyncio.open_connection(host, int(port))
            line = json.dumps({"cmd": "HELLO", "token": guesses[kind]}).encode() + b"\n"
            began_s = time.perf_counter()
            writer.write(line)
            answer = await reader.readline()
            taken_us[kind].append((time.perf_counter() - began_s) * 1e6)
            assert b"UNAUTHORIZED" in answer, answer
            writer.close()
    wrong, unknown = (median(taken_us[kind]) for kind in ("wrong", "unknown"))
    return [
        (f"the answer to a wrong token, median of {LOGINS:,}", f"{wrong:.0f} us"),
        ("the answer to an unknown one", f"{unknown:.0f} us"),
        ("of that", f"{wrong / unknown:.1%}"),
    ]


# --- the dashboard ----------------------------------------------------------------------------------------------------


async def weight(broker: Broker) -> list[tuple[str, str]]:
    """Fetch the page and all that it names, as a browser does."""
    waiting, sizes = ["/"], {}
    async with aiohttp.ClientSession(headers={"Accept": "text/html"}) as session:
        while waiting:
            path = waiting.pop()
            async with session.get(broker.http + path) as answer:
                answer.raise_for_status()
                text = await answer.text()
            sizes[path] = len(text.encode())
            named = [whole or f"/dashboard/{relative}" for whole, relative in ASSET.findall(text)]
            waiting += [one for one in dict.fromkeys(named) if one not in sizes and one not in waiting]
    return [
        ("files of the dashboard", str(len(sizes))),
        ("all of it", f"{sum(sizes.values()) / 1000:.0f} KB (asked: 200)"),
    ]


# --- the command line -------------------------------------------------------------------------------------------------


async def measure(chosen: argparse.Namespace, home: Path) -> str:
    with broker_in(home) as broker:
        await make_queues(broker, chosen.queues)
        busy_s, began_s = machine.busy_cpu_s(), time.monotonic()
        rows = await scrapes(broker, chosen.rounds)
        busy = (machine.busy_cpu_s() - busy_s) / (time.monotonic() - began_s)
        rows += await logins(broker) + await weight(broker)
    about = f"- {machine.facts(home)}\n- everything on the machine together used {busy:.0%} of one core meanwhile"
    today = datetime.datetime.now(datetime.UTC).date()
    command = f"python -m bench.operation --queues {chosen.queues} --rounds {chosen.rounds}"
    return f"# Operating a broker: {today}\n\n    {command}\n\n{about}\n\n{table(('', 'figure'), rows)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.operation", description="Measure what operating costs.")
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=20)
    chosen = parser.parse_args()
    parent = Path(os.environ.get("WAKEQ_BENCH_DIR") or REPOSITORY.parent)
    with tempfile.TemporaryDirectory(prefix="wakeq-bench-", dir=parent) as home:
        report = uvloop.run(measure(chosen, Path(home)))
    today = datetime.datetime.now(datetime.UTC).date()
    (RESULTS / f"{today}-operation.md").write_text(report, encoding="utf-8")
    print(report)


if __name__ == "__main__":
    main()
