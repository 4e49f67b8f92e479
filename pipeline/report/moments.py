"""Moments as people write them."""

from datetime import UTC, datetime


def moment_ms(text: str) -> int:
    """Return the milliseconds since 1970 of a moment as ISO 8601 writes it; without a zone it is UTC."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
