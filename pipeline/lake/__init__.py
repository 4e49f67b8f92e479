"""A lake: the history of brokers as plain Parquet files, in a folder or in an object store.

    data directories --> PLACE/date=2026-01-31/<cluster>-<first>-<last>.parquet      PLACE/_wakeq/: notes and facts
    PLACE --> its files and columns, for any engine that reads Parquet

Every file in a folder `date=...` counts, each event is in one of them, and no file ever changes.  So an engine that
knows nothing of wakeq reads PLACE/date=*/*.parquet, also while an archive is running, or after one was killed.

Begin with archiving.py (writes) and reading.py (reads).  notes.py decides which of two archives goes on; facts.py has
what holds for a whole lake; place.py opens an address as a folder.py or a store.py.  Only store.py needs fsspec.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wakeq.pipeline.lake.archiving import Archived, archive
    from wakeq.pipeline.lake.facts import NOTE_FOLDER
    from wakeq.pipeline.lake.reading import Lake, arrivals_sql

__all__ = ["NOTE_FOLDER", "Archived", "Lake", "archive", "arrivals_sql"]

_HOMES = {
    "archive": "archiving", "Archived": "archiving", "NOTE_FOLDER": "facts", "Lake": "reading",
    "arrivals_sql": "reading",
}  # fmt: skip

# A type checker that saw this function would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name in _HOMES:
            return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
