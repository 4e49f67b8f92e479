"""The columns of the journal, and what a reader may ask for.  Pure names and types; no file is read here."""

from dataclasses import dataclass

import pyarrow as pa

from wakeq.protocol.errors import BadSettings

MOMENT = pa.timestamp("us", tz="UTC")
KINDS: dict[str, pa.DataType] = {
    "at": MOMENT,
    "queue": pa.string(),
    "uid": pa.string(),
    "event": pa.string(),
    "outcome": pa.string(),
    "priority": pa.int64(),
    "delivery": pa.int64(),
    "worker": pa.int64(),
    "door": pa.string(),
    "reason": pa.string(),
    "size": pa.int32(),
    "until": MOMENT,
    "index": pa.int64(),
    "place": pa.int32(),
    "body": pa.binary(),
    "incarnation": pa.int64(),
    "number": pa.int64(),
}
SPARK_TYPES = {
    MOMENT: "timestamp", pa.string(): "string", pa.int64(): "bigint", pa.int32(): "int", pa.binary(): "binary"
}  # fmt: skip
USUAL = tuple(KINDS)[:14]  # what is not among them has to be asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which columns of which events; moments in ms, `until_ms` is not included."""

    columns: tuple[str, ...] = USUAL
    since_ms: int | None = None
    until_ms: int | None = None
    queue: str | None = None
    done_only: bool = False

    def __post_init__(self) -> None:
        unknown = [name for name in self.columns if name not in KINDS]
        if unknown or not self.columns:
            raise BadSettings(
                f"there is no column {', '.join(unknown) or 'wanted'}; the journal has {', '.join(KINDS)}"
            )

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, KINDS[name]) for name in self.columns])

    @property
    def ddl(self) -> str:
        """The same as Spark writes it."""
        return ", ".join(f"`{name}` {SPARK_TYPES[KINDS[name]]}" for name in self.columns)


ALL = Wanted()
