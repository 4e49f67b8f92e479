"""The dashboard and alert rules of examples/monitoring use only metrics and labels that are exported."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from wakeq.http.families import FAMILIES, HISTOGRAM

FOLDER = Path(__file__).parents[2] / "examples" / "monitoring"
METRIC = re.compile(r"\b((?:wakeq|process)_[a-z_]+)\b(?:\{([^}]*)\})?")
LABEL = re.compile(r"([a-z_]+)\s*(?:=~|!=|!~|=)")
ADDED = {"job", "instance", "le"}  # by Prometheus
BY = re.compile(r"\bby \(([^)]*)\)")


def dashboard_expressions() -> Iterator[str]:
    dashboard = json.loads((FOLDER / "grafana-dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"].replace("label_values(", "").rstrip(")")


def alert_expressions() -> list[str]:
    """Read without a YAML parser, which is no dependency: an `expr:` goes on as long as lines are indented deeper."""
    text = (FOLDER / "alerts.yml").read_text()
    found = re.findall(r"^ {8}expr:(?: >-)?((?:\n {10,}.*| .*)+)", text, re.MULTILINE)
    return [" ".join(one.split()) for one in found]


def every_expression() -> list[str]:
    return [*dashboard_expressions(), *alert_expressions()]


def exported() -> dict[str, set[str]]:
    names = {}
    for family in FAMILIES.values():
        suffixes = ("_bucket", "_sum", "_count") if family.kind == HISTOGRAM else ("",)
        names |= {family.name + suffix: {*family.labels, *ADDED} for suffix in suffixes}
    return names


def test_monitoring_examples_are_found() -> None:
    assert len(alert_expressions()) == (FOLDER / "alerts.yml").read_text().count("- alert:") > 10
    assert len(list(dashboard_expressions())) > 20


@pytest.mark.parametrize("expression", every_expression())
def test_query_asks_only_for_exported_metrics(expression: str) -> None:
    known, used = exported(), set()

    for name, labels in METRIC.findall(expression):
        assert name in known, f"{name} is not exported"
        assert set(LABEL.findall(labels)) <= known[name], f"{name} has no such label"
        used |= known[name]
    for group in BY.findall(expression):
        assert {label.strip() for label in group.split(",")} <= used | ADDED


def test_alerts_say_what_to_do() -> None:
    alerts = (FOLDER / "alerts.yml").read_text().split("- alert: ")[1:]

    assert [alert.split()[0] for alert in alerts if " action: " not in alert] == []


def test_alert_about_one_node_names_it() -> None:
    """`max` alone drops the label by which it is found."""
    for expression in alert_expressions():
        if re.search(r"wakeq_(publishes_refused|disk_|state_|log_sync|loop_stall)", expression):
            assert not re.match(r"(max|sum|min)\(", expression), expression


def test_rates_are_taken_of_counters_only() -> None:
    for expression in every_expression():
        for name in re.findall(r"\b(?:rate|increase)\((\w+)", expression):
            assert name.endswith(("_total", "_bucket", "_sum", "_count")), expression
        for name in re.findall(r"\bpredict_linear\((\w+)", expression):
            assert not name.endswith("_total"), expression
