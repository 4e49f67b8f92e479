"""The bars: the value that each figure of wakeq has to reach, by itself or against a peer.  Nothing here measures.

A bar against a peer compares within one round, because machines are noisy; the verdict takes the median of
the rounds. A missed aim is no failure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import isnan
from statistics import median

Rounds = Sequence[Mapping[str, float]]
OURS = "wakeq"
OURS_NUMBERED = "wakeq-numbered"
YARDSTICK = "toy-group"
JOB_LIBRARIES = ("huey", "dramatiq", "celery", "rq")


@dataclass(frozen=True, slots=True)
class Bar:
    """`figure` of `ours`, divided by that of `against` where there is one, must be at least or at most
    `value`."""

    workload: str
    figure: str
    words: str
    value: float
    at_most: bool = False
    against: str | None = None
    aim: bool = False
    ours: str = OURS


class Verdict(Enum):
    MET = "met"
    MISSED = "MISSED"
    AIM_MISSED = "not reached (an aim)"
    UNKNOWN = "not measured"


def _rates(workload: str, value: float, against: str, *, aim: bool = False) -> list[Bar]:
    return [
        Bar(workload, "rate", "by wall", value, against=against, aim=aim),
        Bar(workload, "per_cpu", "by server CPU", value, against=against, aim=aim),
    ]


def _times_each_library(workload: str, value: float) -> list[Bar]:
    """As many times the best of them is as many times each of them."""
    return [Bar(workload, "rate", "jobs a second", value, against=library) for library in JOB_LIBRARIES]


def _most(workload: str, figure: str, words: str, value: float, *, aim: bool = False) -> Bar:
    return Bar(workload, figure, words, value, at_most=True, aim=aim)


def _fleet(value: float, *, aim: bool = False) -> list[Bar]:
    """As the raw protocol publishes, and as our own clients do."""
    return [
        Bar("W12D", "cpu_us", words, value, at_most=True, against=YARDSTICK, aim=aim, ours=ours)
        for ours, words in ((OURS, "CPU of a life"), (OURS_NUMBERED, "CPU of a life, numbered publishes"))
    ]


BARS: tuple[Bar, ...] = (
    *_rates("W1", 0.55, YARDSTICK),
    *_rates("W1", 0.65, YARDSTICK, aim=True),
    *_rates("W1", 1.5, "rabbit-quorum"),
    *_rates("W1", 2.0, "beanstalkd-f50"),
    *_rates("W1", 1.0, "redis-list-always", aim=True),
    Bar("W2", "rate", "by wall", 0.66, against=YARDSTICK),
    Bar("W2B", "rate", "messages in batches of 100", 1.0, against=YARDSTICK),
    Bar("W3", "rate", "cycles a second", 0.75, against="beanstalkd-f0"),
    Bar("W4", "p50_us", "wake p50", 2.0, at_most=True, against="beanstalkd-f0"),
    Bar("W4B", "p50_us", "wake p50", 1.4, at_most=True, against="beanstalkd-f0"),
    _most("W5", "kb_each", "KB of memory for each", 8),
    _most("W5", "kb_each", "KB of memory for each", 5, aim=True),
    _most("W5", "wake_beyond_ms", "ms to wake one, beyond a sync", 10),
    _most("W5", "stall_ms", "ms of stall when all hang up", 50),
    _most("W6", "resident_each", "bytes of resident memory each", 200),
    _most("W6", "resident_each", "bytes of resident memory each", 50, aim=True),
    _most("W6", "lmdb_each", "bytes of LMDB each", 2_100),
    _most("W6", "files_each", "bytes of all files each", 4_500),
    _most("W6", "after_term_s", "s to the first fetch after SIGTERM", 3),
    _most("W6", "after_kill_s", "s to the first fetch after SIGKILL", 3),
    *_times_each_library("W7", 5.0),
    *_times_each_library("W7B", 5.0),
    Bar("W8A", "rate_ratio", "publishes/s, after to before", 0.8),
    _most("W8B", "growth", "CPU of a life, worst to the one at 10^3", 1.4),
    Bar("W8C", "rate_ratio", "publishes/s, many queues to one", 0.4),
    _most("W8C", "resident_ratio", "memory, many queues to one", 1.3),
    _most("W8C", "restart_ratio", "restart, many queues to one", 1.5),
    Bar("W9", "ratio", "Client.publish, to a bare socket", 0.8),
    Bar("W9", "batch_ratio", "publish_many of 100, to a bare socket", 0.6),
    Bar("W10", "enqueue_ratio", "Enqueue+Ack, to PUB", 0.9),
    Bar("W10", "enqueue_ratio", "Enqueue+Ack, to PUB", 1.1, aim=True),
    Bar("W10", "fresh_ratio", "Dequeue+Ack, to PUB", 0.9),
    _most("W10", "idle_mb", "MB with 5,000 idle connections", 100),
    Bar("W11", "frames", "frames a second", 39_000),
    _most("W11", "grown_mb", "MB that memory grew meanwhile", 10),
    _most("W11", "all_ms", "ms until 1,000 have one message", 50),
    Bar("W11", "beside_cpu_ratio", "frames for a server-CPU-s beside a stopped reader", 0.8),
    _most("W11", "beside_mb", "MB grown beside it", 20),
    _most("W11", "beside_ms_ratio", "ms to all beside it, to without", 1.2),
    Bar("W12A", "cpu_us", "CPU of a life", 1.3, at_most=True, against=YARDSTICK),
    *_fleet(2.4),
    *_fleet(1.6, aim=True),
    Bar("W12D", "rate", "lives a second", 0.5, against="redis-list-always"),
    *(_most(f"W13{mixture}", "ratio", "CPU of a step, in turns to sorted", 1.6) for mixture in "ABDEF"),
    _most("W13C", "more_us", "CPU us of ACK with publish beyond PUB and ACK", 30),
)


def middle(rounds: Rounds, figure: str) -> float | None:
    values = [one[figure] for one in rounds if figure in one and not isnan(one[figure])]
    return median(values) if values else None


def ratio(ours: Rounds, theirs: Rounds, figure: str) -> float | None:
    """The median over the rounds in which both were measured."""
    ratios = [
        one[figure] / other[figure]
        for one, other in zip(ours, theirs, strict=False)
        if one.get(figure) and other.get(figure)
    ]
    return median(ratios) if ratios else None


def judge(bar: Bar, cells: Mapping[str, Rounds]) -> tuple[float | None, Verdict]:
    """Return the reached value and the verdict.  `cells` are the rounds of each peer in the bar's
    workload."""
    ours = cells.get(bar.ours, ())
    reached = middle(ours, bar.figure) if bar.against is None else ratio(ours, cells.get(bar.against, ()), bar.figure)
    if reached is None:
        return None, Verdict.UNKNOWN
    if reached <= bar.value if bar.at_most else reached >= bar.value:
        return reached, Verdict.MET
    return reached, Verdict.AIM_MISSED if bar.aim else Verdict.MISSED
