"""OpenAPI: the document describes the API: every path answers as described, whatever is sent."""

import json
import random
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.brokers.node_here import NodeHere, client_of, node_here, run
from wakeq.http.api.api import PREFIX, STATUSES
from wakeq.protocol.errors import QueueFull

# For each operation.
EXAMPLES = 25
STREAMS = ("/events", "/backup", "/journal/segment", "/journal/outcomes")

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def schema_values(schema: dict[str, Any], components: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Draw values of a schema, and sometimes other values."""
    return st.one_of(*[fitting(schema, components)] * 6, anything)


def fitting(schema: dict[str, Any], components: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return fitting(components[schema["$ref"].rpartition("/")[2]], components)
    if "anyOf" in schema:
        return st.one_of([fitting(one, components) for one in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "object" if "properties" in schema:
            required = schema.get("required", [])
            fields = {name: fitting(one, components) for name, one in schema["properties"].items()}
            return st.fixed_dictionaries(
                {name: fields[name] for name in required},
                optional={name: one for name, one in fields.items() if name not in required},
            )
        case "object":
            return st.dictionaries(st.sampled_from(["timeout", "max_size", "nothing"]), st.integers(1, 9), max_size=1)
        case "array":
            return st.lists(
                fitting(schema.get("items", {}), components), min_size=schema.get("minItems", 0), max_size=3
            )
        case "integer":
            return st.integers(schema.get("minimum", 0), 20) | st.integers(-2, 20)
        case "number":
            return st.floats(0.5, 50, allow_nan=False) | st.just(-1.0)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "string":
            return st.sampled_from(["jobs"] * 6 + ["other", "", "a b", "0000003_00000001", "priority<5", "x" * 300])
    return anything


def test_openapi_document_describes_exactly_the_routes(tmp_path: Path) -> None:
    async def story() -> tuple[dict[str, Any], set[tuple[str, str]]]:
        async with node_here(tmp_path / "data") as here:
            _, text = await here.get("/api/v1/openapi.json")
            served = {
                (route.method.lower(), route.resource.canonical)
                for route in here.node.listeners._web._app.router.routes()
                if route.resource is not None and route.resource.canonical.startswith(PREFIX) and route.method != "HEAD"
            }
            return json.loads(text), served

    document, served = run(story())

    described = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert described | {("get", PREFIX + "/openapi.json")} == served
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert references <= set(document["components"]["schemas"])
    assert len({op["operationId"] for methods in document["paths"].values() for op in methods.values()}) == len(
        described
    )


def test_arbitrary_requests_get_described_answers(tmp_path: Path) -> None:
    """No answer has an undescribed status, and none is an internal error."""

    async def one(here: NodeHere, method: str, path: str, query: dict[str, Any], body: Any) -> tuple[int, Any]:
        named = {
            name: str(value) if not isinstance(value, bool) else str(value).lower() for name, value in query.items()
        }
        async with here.session.request(method, here.http + path, params=named, json=body) as response:
            return response.status, await response.json()

    async def story() -> None:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            await client.publish_many("jobs", ["m"] * 10)
            document = json.loads((await here.get("/api/v1/openapi.json"))[1])
            components = document["components"]["schemas"]
            cases: list[tuple[str, str, Any, Any]] = []

            for path, methods in document["paths"].items():
                for method, operation in methods.items():
                    if path.endswith(STREAMS):
                        continue
                    parameters = {p["name"]: p["schema"] for p in operation.get("parameters", [])}
                    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
                    cases += drawn(method, path, parameters, body, components)

            random.Random(7).shuffle(cases)
            done = 0
            for method, path, query, body in cases:
                status, answer = await one(here, method, path, query, body)
                # A policy that was just drawn may refuse it, and the queue may have been deleted.
                with suppress(QueueFull):
                    await client.publish("jobs", b"more")
                done += status == 200
                assert status == 200 or status in {*STATUSES.values()} - {500}, (method, path, query, body, answer)
                assert status == 200 or set(answer) == {"error"}, (method, path, query, body, answer)
            assert done > len(cases) // 8, "nearly all of it was refused, so little was tried"
            assert here.node.failed is not None
            assert not here.node.failed.done()
            assert here.node.runtime.failures == 0

    run(story())


def drawn(
    method: str, path: str, parameters: dict[str, Any], body: Any, components: dict[str, Any]
) -> list[tuple[str, str, Any, Any]]:
    """Draw requests of one operation, without a rate, which would only make calls slow."""
    found: list[tuple[str, str, Any, Any]] = []
    known = {name: fitting(schema, components) for name, schema in parameters.items()}
    right = st.fixed_dictionaries(known)
    queries = st.one_of(right, right, right, st.fixed_dictionaries({}, optional=known | {"other": anything}))

    @settings(max_examples=EXAMPLES, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(query=queries, content=st.none() if body is None else schema_values(body, components))
    def collect(query: Any, content: Any) -> None:
        if isinstance(content, dict):
            content.pop("rate", None)
        found.append((method, path, query, content))

    collect()
    return found
