"""Place: a runtime with MoniQue's exchange only; it has no broker, and no time passes.

place.client() --> exchange <-- whoever a test spawns          place.settle(): everything is served
"""

from tests.helpers.monique.by_hand import HandMonique
from wakeq.actors.monique.counters import MoniqueCounters
from wakeq.actors.monique.exchange import MoniqueExchange, Rules
from wakeq.actors.runtime import Runtime

NOW_MS = 1_528_138_732_079


class Place:
    """A runtime with one exchange."""

    def __init__(self, rules: Rules = Rules()) -> None:  # noqa: B008
        self.runtime = Runtime()
        self.now_ms = NOW_MS
        self.counters = MoniqueCounters(lambda: self.now_ms)
        self.exchange = self.runtime.spawn(
            MoniqueExchange, rules, None, lambda: NOW_MS, self.counters, lambda below: below - 1
        )
        self.settle = self.runtime.run_until_idle

    def client(self) -> HandMonique:
        return HandMonique(self.runtime, self.exchange, self.settle, self.counters)
