"""W8A, W8B, W8C: what must not grow - with delayed messages, with the length of a queue, with the number of
queues."""

from dataclasses import replace
from statistics import median

from bench.load.flow import Flow, Load
from bench.peers.peer import Peer
from bench.workloads.backlog import fill, restart_s
from bench.workloads.workload import (
    NOISE,
    Column,
    Figures,
    Plan,
    Workload,
    bulk_load,
    cpu_us,
    live_all,
    publish_all,
    start_fresh,
    until_quiet,
)

DELAYED = 5_000_000
DELAYS_S = tuple(3_600 + 61 * turn % 86_400 for turn in range(0, 1_000, 3))
SAMPLES = 5
SAMPLE_MESSAGES = 50_000
LIVES = 50_000
BACKLOG_ABOVE = 2_000
POWERS = (3, 4, 5, 6)
POWERS_FULL = (*POWERS, 7)
QUEUES = 10_000
SPREAD_MESSAGES = 1_000_000
SLOW_S_MAX = 900.0


async def delayed(peer: Peer, plan: Plan) -> Figures:
    """The rate of plain publishes, before and after there are millions that wait for their moment."""
    await start_fresh(peer)
    count = plan.count(DELAYED, least=10_000)
    before = await publish_rates(peer, plan)
    load = replace(bulk_load(peer, body_bytes=100), delays_s=DELAYS_S)
    stored = await publish_all(peer, load, count=count)
    await until_quiet(peer)
    after = await publish_rates(peer, plan)
    figures = {"count": float(count), "fill_rate": stored["rate"], "resident_mb": resident_mb(peer)}
    for name in ("rate", "per_cpu"):
        figures[f"{name}_before"], figures[f"{name}_after"] = before[name], after[name]
        figures[f"{name}_ratio"] = after[name] / before[name]
    return figures


async def publish_rates(peer: Peer, plan: Plan) -> Figures:
    """The median of several short samples; the first one only warms up."""
    count = plan.count(SAMPLE_MESSAGES)
    samples = [await publish_all(peer, Load(), count=count) for _ in range(SAMPLES + 1)][1:]
    return {name: median(sample.get(name, 0.0) for sample in samples) or float("nan") for name in ("rate", "per_cpu")}


async def long_queue(peer: Peer, plan: Plan) -> Figures:
    """The cost of a life in a queue that holds 10^3, 10^4 ... messages all the time."""
    await start_fresh(peer)
    figures: Figures = {}
    held = 0
    for power in POWERS_FULL if plan.full else POWERS:
        goal = max(100, int(10**power * plan.scale))
        if more := (goal - held) // 100 * 100:
            await fill(peer, more, body_bytes=100, most_s=SLOW_S_MAX)
        held += more
        await until_quiet(peer)
        flow = Flow(count=plan.count(LIVES), backlog_max=BACKLOG_ABOVE, balanced=True)
        done = await live_all(peer, flow, Load())
        figures[f"rate_{power}"] = done["rate"]
        figures[f"cpu_us_{power}"] = cpu_us(done)
    costs = [value for name, value in figures.items() if name.startswith("cpu_us_")]
    return figures | {"growth": max(costs[1:]) / (costs[0] or float("nan")), "resident_mb": resident_mb(peer)}


async def many_queues(peer: Peer, plan: Plan) -> Figures:
    """The same messages in one queue, and round robin in ten thousand."""
    one = await one_spread(peer, plan, ("bench",))
    queues = plan.count(QUEUES, least=100) - 1
    many = await one_spread(peer, plan, ("bench", *(f"bench-{number}" for number in range(queues))))
    figures = {f"{name}_one": value for name, value in one.items()}
    figures |= {f"{name}_many": value for name, value in many.items()}
    return figures | {f"{name}_ratio": many[name] / one[name] for name in one}


async def one_spread(peer: Peer, plan: Plan, queues: tuple[str, ...]) -> Figures:
    """Publish one by one, for batches name one queue each; then what is held, and a restart."""
    await start_fresh(peer)
    count = plan.count(SPREAD_MESSAGES)
    done = await publish_all(peer, Load(queues=queues), count=count)
    await until_quiet(peer)
    held_mb = resident_mb(peer)
    figures = {"rate": done["rate"], "resident": held_mb, "restart": await restart_s(peer, kill=False)}
    await peer.stop()
    peer.wipe()
    return figures


def resident_mb(peer: Peer) -> float:
    return peer.memory().resident_bytes / 2**20


DELAYED_COLUMNS = (
    Column("count", "delayed"),
    Column("fill_rate", "fill/s"),
    Column("rate_before", "publishes/s before"),
    Column("rate_after", "after"),
    Column("rate_ratio", "ratio", ".2f"),
    Column("per_cpu_ratio", "ratio per CPU-s", ".2f"),
    Column("resident_mb", "resident MB"),
    *NOISE[1:],
)
LONG_COLUMNS = (
    *(Column(f"rate_{power}", f"lives/s at 10^{power}") for power in POWERS_FULL),
    *(Column(f"cpu_us_{power}", f"CPU us at 10^{power}", ".1f") for power in POWERS_FULL),
    Column("growth", "worst to first", ".2f"),
    *NOISE[1:],
)
MANY_COLUMNS = tuple(
    Column(f"{name}_{part}", f"{title}{tail}", ".2f" if part == "ratio" or name == "restart" else ",.0f")
    for name, title in (("rate", "publishes/s"), ("resident", "resident MB"), ("restart", "restart s"))
    for part, tail in (("one", ", one queue"), ("many", ", many"), ("ratio", ", ratio"))
)
OURS = ("wakeq",)
WORKLOADS = (
    Workload("W8A", "publish beside millions of delayed messages", delayed, DELAYED_COLUMNS, OURS, repeats=False),
    Workload("W8B", "lives in an ever longer queue", long_queue, LONG_COLUMNS, OURS, repeats=False),
    Workload("W8C", "round robin to many queues", many_queues, MANY_COLUMNS, OURS, repeats=False),
)
