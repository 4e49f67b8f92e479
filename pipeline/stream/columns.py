"""The columns of messages in data frames: which there are, and of which types of Spark.

names and types of a schema --> check_readable, check_writable --> BadSettings, BadField in one line
"""

from collections.abc import Mapping, Sequence

from wakeq.protocol.errors import BadField, BadSettings

# Messages that are read, by column, with the names of Spark's types.
READABLE = {
    "uid": "string",
    "queue": "string",
    "body": "binary",
    "priority": "bigint",
    "delivery": "int",
    "published": "timestamp",
    "headers": "map<string,string>",
    "state": "string",
}
# The columns of a block from which these are made, where the names differ.
IN_BLOCKS = {"delivery": "deliveries", "published": "published_ms"}
# These columns are there only if an option asks for them.
ON_DEMAND = ("headers", "state")
# The type `void` is a column of nulls only.
_NUMBER = "a whole number", ("tinyint", "smallint", "int", "bigint", "void")
# Messages that are written: the types of each column, in words and by Spark's names.
WRITABLE = {
    "body": ("string or binary", ("string", "binary")),
    "priority": _NUMBER,
    "delay": _NUMBER,
    "headers": ("map<string,string>", ("map<string,string>", "void")),
}


def in_blocks(names: Sequence[str]) -> list[str]:
    """Return the columns of a block that are needed for these columns of a data frame."""
    # The name of the queue is in no block; the rows must be counted all the same.
    return [IN_BLOCKS.get(name, name) for name in names if name != "queue"] or ["priority"]


def check_readable(kinds: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of columns that a program asks for, with Spark's types; refuse what messages do not have."""
    for name, kind in kinds.items():
        if name not in READABLE:
            raise BadSettings(f"a message has no column {name}; it has {', '.join(READABLE)}")
        # The name of a string type may be followed by its collation.
        if kind.split()[0] != READABLE[name]:
            raise BadSettings(f"column {name} is {READABLE[name]}, not {kind}; correct .schema(...), or leave it out")
    if not kinds:
        raise BadSettings("no column is left to be read; name at least one")
    return tuple(kinds)


def check_writable(kinds: Mapping[str, str]) -> None:
    """Refuse columns and types that cannot be published."""
    check_names(list(kinds))
    for name, kind in kinds.items():
        words, fitting = WRITABLE[name]
        if kind.split()[0] not in fitting:
            raise BadField(f"column {name} is {kind}; it must be {words}")


def check_names(names: Sequence[str]) -> None:
    """Refuse columns that cannot be published, whatever their types are."""
    unknown = [name for name in names if name not in WRITABLE]
    if unknown or "body" not in names:
        what = f"column {unknown[0]} cannot be published" if unknown else "there is no column body"
        raise BadField(f"{what}; select body (text or binary), and priority, delay (seconds), headers if you need them")
