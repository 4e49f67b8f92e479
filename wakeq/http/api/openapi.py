"""OpenAPI: the description of the HTTP API, made from its routes, so that both always agree.  Pure."""

from collections.abc import Sequence
from typing import Any

import msgspec

from wakeq.http.api.api import PREFIX, STATUSES, Route

REFERENCE = "#/components/schemas/{name}"
RANGE = {
    "name": "Range", "in": "header", "required": False, "description": "One range of bytes, such as bytes=0-65535",
    "schema": {"type": "string", "pattern": "^bytes=[0-9]{0,15}-[0-9]{0,15}$"},
}  # fmt: skip


class ErrorFacts(msgspec.Struct):
    """The reason of a refusal: a stable code, a sentence, and in a cluster the leader's worker address."""

    code: str
    detail: str
    leader: str = ""


class ErrorAnswer(msgspec.Struct):
    """The body of every refusal."""

    error: ErrorFacts


def document(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of these routes."""
    types = _types_of(routes)
    schemas, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
    schema_of = {id(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = _operation(route, schema_of, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "wakeq", "version": version, "description": "Observe and operate a broker."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _types_of(routes: Sequence[Route]) -> list[Any]:
    """Return every type once; types are compared by identity."""
    types: dict[int, Any] = {id(ErrorAnswer): ErrorAnswer}
    for route in routes:
        for kind in (route.query, route.body, route.answer):
            if kind is not None:
                types.setdefault(id(kind), kind)
    return list(types.values())


def _operation(route: Route, schema_of: dict[int, Any], components: dict[str, Any]) -> dict[str, Any]:
    content_type = route.streams or "application/json"
    found = {"type": "string"} if route.streams else schema_of[id(route.answer)]
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}{route.path.replace('/', '_').replace('.', '_')}",
        "summary": route.about,
        "description": f"Needs the right to {route.need}.",
        "responses": {
            "200": {"description": "Done", "content": {content_type: {"schema": found}}},
            **{str(status): _refusal(schema_of) for status in sorted(set(STATUSES.values()))},
        },
    }
    if route.has_ranges:
        part = {"description": "The range", "content": {content_type: {"schema": found}}}
        operation["responses"] |= {"206": part, "416": _refusal(schema_of)}
    if route.query is not None:
        operation["parameters"] = _parameters(route.query, components)
    if route.has_ranges:
        operation["parameters"] = [*operation.get("parameters", ()), RANGE]
    if route.body is not None:
        body = {"application/json": {"schema": schema_of[id(route.body)]}}
        operation["requestBody"] = {"required": True, "content": body}
    return operation


def _parameters(query: type[msgspec.Struct], components: dict[str, Any]) -> list[dict[str, Any]]:
    schema = components[query.__name__]
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": one}
        for name, one in schema["properties"].items()
    ]


def _refusal(schema_of: dict[int, Any]) -> dict[str, Any]:
    return {"description": "Refused", "content": {"application/json": {"schema": schema_of[id(ErrorAnswer)]}}}
