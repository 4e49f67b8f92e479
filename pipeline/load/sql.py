"""SQL with a condition of a user in it: what DuckDB may do, a value in a query, an error about the condition."""

from wakeq.protocol.errors import BadSettings

SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    # A condition is about its rows alone: no files, no tables that are variables of this program, no network.
    "enable_external_access": False,
}


def quoted(text: str) -> str:
    """Return a text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def wrong_condition(where: str, error: Exception, hint: str = "") -> BadSettings:
    """Return what DuckDB says of a condition, without the part of the query that it shows below."""
    said = str(error).partition("\n\n")[0]
    return BadSettings(f"--where {where!r}: {' '.join(said.split())}{hint}")
