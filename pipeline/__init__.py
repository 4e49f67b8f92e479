"""pipeline: the broker's history and queues as Spark data frames.

What needs Spark is imported when it is asked for: the journal can be read without.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wakeq.pipeline.stream.settling import autoack

__all__ = ["autoack"]


if not TYPE_CHECKING:  # a checker that saw it would take any name for one that is there

    def __getattr__(name: str) -> Any:
        if name in __all__:
            from wakeq.pipeline.stream import settling

            return getattr(settling, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
