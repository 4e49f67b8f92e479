"""Readings of a broker, as `wakeq top` gets them."""

from typing import Any


def queue(name: str, **fields: Any) -> dict[str, Any]:
    made = {"name": name, "queue_id": name, "ready": 0, "delayed": 0, "leased": 0, "subscribers": 1}
    counters = {"published": 0, "acked": 0, "released": 0, "oldest_ready_ms": 0, "paused_until_ms": 0}
    return made | counters | fields


def reading(at_ms: int, *queues: dict[str, Any], term: int = 1, total: int | None = None) -> dict[str, Any]:
    sums = {field: sum(one[field] for one in queues) for field in ("ready", "leased", "published", "acked")}
    return {
        "at_ms": at_ms,
        "queues": list(queues),
        "queues_found": len(queues) if total is None else total,
        "queues_total": 1_000,
        "totals": sums,
        "figures": {"wakeq_connections:worker": 3.0, "process_resident_memory_bytes": 50 << 20},
        "cluster": {"role": "leader", "term": term, "members": [{}]},
        "error": "",
    }
