"""Texts of SQL: a value in a query, and an error about a condition of a user."""

from wakeq.protocol.errors import BadSettings


def quoted(text: str) -> str:
    """Return a text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def wrong_condition(where: str, error: Exception, hint: str = "") -> BadSettings:
    """Return what DuckDB says of a condition, without the part of the query that it shows below."""
    said = str(error).partition("\n\n")[0]
    return BadSettings(f"--where {where!r}: {' '.join(said.split())}{hint}")
