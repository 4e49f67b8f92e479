"""SeriesRoutes: what happened lately, in the HTTP API: the values for charts of the node, or of a queue."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from wakeq.http.api.api import Route
from wakeq.http.api.queries import Queries
from wakeq.http.api.queues import Name
from wakeq.http.callers import LOOK
from wakeq.protocol.names import check_name
from wakeq.protocol.series import DAY_S, STEP_S

DIGITS = 3
Values = list[float | None]


class SeriesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """A queue, or nothing for the whole node; and how far back."""

    queue: Name | None = None
    step: Annotated[
        Literal[10, 300],
        Meta(description="Seconds. At 10, the node has a day and a queue half an hour; at 300, both have a day."),
    ] = 10
    last_s: Annotated[int, Meta(ge=STEP_S, le=DAY_S, description="Only so many seconds, up to now.")] = DAY_S


class SeriesAnswer(msgspec.Struct):
    """The values of each step by name; `at_s` has the end of each step, in seconds since 1970.

    Counts are per second. Null means unknown: the node was down or did not lead, or nothing was delivered.
    """

    step_s: int
    at_s: list[int]
    series: dict[str, Values]


def series_routes(queries: Queries) -> Sequence[Route]:
    """Return the route for series."""

    async def show(query: SeriesQuery) -> dict[str, Any]:
        name = None if query.queue is None else check_name(query.queue)
        answer = await queries.series(name, query.step, query.last_s)
        columns = {}
        for what, values in answer["series"].items():
            columns[what] = msgspec.Raw(msgspec.json.encode([round(value, DIGITS) for value in values]))
            await asyncio.sleep(0)  # the node's day at ten seconds takes milliseconds for each
        return answer | {"series": columns}

    about = "Show the series of the node or of a queue"
    return (Route("GET", "/series", about, LOOK, show, SeriesQuery, answer=SeriesAnswer),)
