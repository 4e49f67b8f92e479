"""wakeq.testing: the real broker inside a test, in memory and in milliseconds, with a clock that the test drives.

The names are imported on their first use, because every run of pytest imports the plugin beside this file.
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


# A type checker that saw this function would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a name on its first use."""
        if name not in HOMES:
            raise AttributeError(f"module 'wakeq.testing' has no attribute {name!r}")
        value = getattr(import_module(HOMES[name]), name)
        globals()[name] = value
        return value
