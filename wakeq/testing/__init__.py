"""wakeq.testing: the real broker inside a test, in memory and in milliseconds, with a clock that the test drives.

The names are loaded when they are first used: the pytest plugin beside this file is imported by every run of pytest.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wakeq.testing.eager_mode import eager
    from wakeq.testing.memory_broker import Broker, broker

HOMES = {
    "Broker": "wakeq.testing.memory_broker",
    "broker": "wakeq.testing.memory_broker",
    "eager": "wakeq.testing.eager_mode",
}

__all__ = ["Broker", "broker", "eager"]


if not TYPE_CHECKING:  # a checker that saw it would take any name for one that is there

    def __getattr__(name: str) -> object:
        """Load a name from where it lives, once."""
        if name not in HOMES:
            raise AttributeError(f"module 'wakeq.testing' has no attribute {name!r}")
        value = getattr(import_module(HOMES[name]), name)
        globals()[name] = value
        return value
