"""The generated pages of docs/reference about the HTTP port: every metric, every path of the API.

table of metrics, tables of routes  -->  metrics.md, http.md
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from wakeq.http.api.api import PREFIX, STATUSES, Route
from wakeq.http.api.backup import Backup
from wakeq.http.api.events import Events
from wakeq.http.api.messages import message_routes
from wakeq.http.api.node import node_routes
from wakeq.http.api.queues import queue_routes
from wakeq.http.families import ALL_QUEUES, MONIQUE, NODE, QUEUE, Family

MADE = "<!-- Made by `make reference` from the code; do not edit. -->"
NOBODY = cast(Any, None)  # the tables are only read

METRICS_INTRO = f"""\
# Metrics

{MADE}

What `GET /metrics` says, in the text format of Prometheus. Names never change; new ones are added. Counters of a
queue begin again when it is purged; those of all queues only grow. Only the node that leads exports what has to do
with queues, so sums over a cluster are right. How to use them: [monitoring](../operations/monitoring.md).
"""

HTTP_INTRO = f"""\
# The HTTP API

{MADE}

JSON over the HTTP port (8080), under `{PREFIX}`. The same as an OpenAPI document: `GET {PREFIX}/openapi.json`. A
body must have `Content-Type: application/json`, also where there is nothing to say (`{{}}`). With tokens, send
`Authorization: Bearer TOKEN`. A refusal is `{{"error": {{"code", "detail"}}}}`, in a cluster with the `leader`'s worker
address where another node leads. Rights: `look` is any right, `read` is fetch or admin, `admin` is admin, for the queue
that is named, or for all queues where none is. How to use it: [operating](../operations/admin.md).

Besides: `/livez`, `/readyz` (with `?leader`, only the node that serves is ready), [`/metrics`](metrics.md), and the
dashboard at `/`.
"""


def metrics_page() -> str:
    """docs/reference/metrics.md."""
    tables = (("The node", NODE), ("MoniQue", MONIQUE), ("All queues together", ALL_QUEUES), ("Each queue", QUEUE))
    return METRICS_INTRO + "".join(f"\n## {title}\n\n{_metrics(families)}" for title, families in tables)


def _metrics(families: Sequence[Family]) -> str:
    rows = [
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels) or '-'} | {about} |"
        for name, kind, about, labels in families
    ]
    return "\n".join(("| Name | Kind | Labels | What it says |", "| --- | --- | --- | --- |", *rows)) + "\n"


def every_route() -> list[Route]:
    """All routes of the API, for reading only."""
    events, backup = Events(NOBODY, NOBODY, NOBODY), Backup(NOBODY, NOBODY, NOBODY, NOBODY)
    tables = (
        queue_routes(NOBODY, NOBODY), message_routes(NOBODY, NOBODY, NOBODY), node_routes(NOBODY, NOBODY, {}),
        events.routes(), backup.routes(),
    )  # fmt: skip
    return [route for table in tables for route in table]


def http_page() -> str:
    """docs/reference/http.md."""
    parts = "".join(part for route in every_route() for part in _route(route))
    codes = "".join(f"| {status} | {', '.join(f'`{code}`' for code in _codes(status))} |\n" for status in _statuses())
    return HTTP_INTRO + parts + f"\n## Statuses\n\n| Status | Codes |\n| --- | --- |\n| 200 | - |\n{codes}"


def _statuses() -> list[int]:
    return sorted(set(STATUSES.values()))


def _codes(status: int) -> list[str]:
    return [code for code, its in STATUSES.items() if its == status]


def _route(route: Route) -> Iterator[str]:
    """One path: what it is for, what it takes."""
    yield f"\n## {route.method} {route.path}\n\n{route.about}. Right: {route.need}."
    if route.streams:
        yield f" Answers with `{route.streams}`."
    yield "\n"
    for title, kind in (("Query", route.query), ("Body", route.body)):
        fields = msgspec.structs.fields(kind) if kind is not None else ()
        if kind is None or not fields:
            continue
        yield f"\n{title}: {' '.join((kind.__doc__ or '').split())}\n\n| Field | Default | |\n| --- | --- | --- |\n"
        schema = msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"]
        for field in fields:
            yield f"| `{field.encode_name}` | {_default(field)} | {_shape(schema[field.encode_name])} |\n"


def _default(field: Any) -> str:
    if field.required:
        return "required"
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return f"`{msgspec.json.encode(value).decode()}`"


def _shape(schema: dict[str, Any]) -> str:
    """Say what fits, in a few words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_shape(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    words = {"integer": "whole number", "array": "array", "null": "null"}
    words |= {"object": "object", "string": "text", "boolean": "true or false"}
    kind = words.get(schema.get("type", ""), str(schema.get("type", "anything")))
    least = schema.get("minimum", schema.get("exclusiveMinimum", schema.get("minLength", schema.get("minItems"))))
    most = schema.get("maximum", schema.get("maxLength", schema.get("maxItems")))
    bounds = (
        f", {'' if least is None else least}..{'' if most is None else most}" if (least, most) != (None, None) else ""
    )
    form = " (RFC 3339)" if schema.get("format") == "date-time" else ""
    of = f" of {_shape(schema['items'])}" if schema.get("items") else ""
    return f"{kind}{form}{of}{bounds}"
