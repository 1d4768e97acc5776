"""Dashboard and alert rules: each expression names metrics and labels that /metrics has."""

import json
import re

import pytest
import yaml

from apps.notifications.models import Delivery
from apps.operations.lifecycle import Reason
from apps.operations.models import Attempt
from apps.operations.scheduling.blocking import BlockingReason
from apps.workers import metrics
from apps.workers.models import Worker
from tests.journey.stack import ROOT

FOLDER = ROOT / "docker" / "monitoring"
ALERTS = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
PANELS = [each for each in json.loads((FOLDER / "dashboard.json").read_text())["panels"]
          if each["type"] != "row"]  # fmt: skip
LABELS = {
    **{f"trainops_{each.name}": each.labels for each in metrics.GAUGES},
    **{f"trainops_{each.name}_total": each.labels for each in metrics.COUNTERS},
    "up": ("job", "instance"),
}
VALUES = {
    "status": {*Worker.Status.values, *Delivery.Status.values},
    "cause": {*BlockingReason},
    "outcome": {*Attempt.Outcome.values},
    "reason": {*Reason.values},
    "use": {"used", "free"},
    "label": {""},
    "job": {"trainops"},
}
FUNCTIONS = {"sum", "max", "min", "by", "rate", "increase", "and"}
EXPRESSIONS = [
    *(pytest.param(each["expr"], id=each["alert"]) for each in ALERTS),
    *(pytest.param(target["expr"], id=panel["title"])
      for panel in PANELS for target in panel["targets"]),
]  # fmt: skip


def selectors(expression):
    """Yield the name and the matchers of each selector; fail for what is no known word."""
    words = re.sub(r"by \(([^)]*)\)", "", expression)  # its labels are compared below
    for name, matchers in re.findall(r"\b([a-z_]+)\b(?:\{([^}]*)\})?", _bare(words)):
        if name not in FUNCTIONS:
            assert name in LABELS, f"{name} of {expression}"
            yield name, re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', matchers)


def _bare(expression):
    """Without durations and numbers."""
    return re.sub(r"\[[^\]]*\]|\b[0-9][0-9e.]*\b", "", expression)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_names_what_the_metrics_have(expression):
    found = list(selectors(expression))
    assert found
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing)
    for name, matchers in found:
        for label, sign, text in matchers:
            assert label in LABELS[name], f"{label} of {name}"
            values = text.split("|") if "~" in sign else [text]
            assert {*values} <= VALUES[label], f"{text} of {label}"
    known = {label for name, _ in found for label in LABELS[name]}
    for labels in re.findall(r"by \(([^)]*)\)", expression):
        assert {each.strip() for each in labels.split(",")} <= known
    for name in re.findall(r"(?:rate|increase)\((\w+)", expression):
        assert name.endswith("_total")


def test_wrong_expressions_are_found():
    for wrong in (
        "sum(trainops_queue)",
        'sum(trainops_workers{state="BUSY"})',
        'sum(trainops_workers{status="LAZY"})',
        "sum by (kind) (trainops_workers)",
        "rate(trainops_workers[5m])",
    ):
        with pytest.raises((AssertionError, KeyError)):
            test_an_expression_names_what_the_metrics_have(wrong)


def test_alerts_say_what_is_wrong_and_how_urgent_it_is():
    names = [each["alert"] for each in ALERTS]
    assert len({*names}) == len(names)
    for each in ALERTS:
        assert each["labels"]["severity"] in ("page", "ticket")
        assert {*each["annotations"]} == {"summary", "description"}
        labels = re.findall(r"\$labels\.(\w+)", json.dumps(each["annotations"]))
        known = {label for name, _ in selectors(each["expr"]) for label in LABELS[name]}
        assert {*labels} <= known


def test_every_metric_is_drawn():
    drawn = {name for panel in PANELS for target in panel["targets"]
             for name, _ in selectors(target["expr"])}  # fmt: skip
    assert {*LABELS} - drawn == {"up", "trainops_info"}


def test_panels_do_not_overlap():
    taken = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & taken and place["x"] + place["w"] <= 24
        taken |= cells


def test_the_page_of_the_documentation_has_every_metric():
    text = (ROOT / "docs" / "observability.md").read_text()
    for name, labels in LABELS.items():
        if name != "up":
            assert f"| `{name}` |" in text, name
            row = next(line for line in text.splitlines() if f"| `{name}` |" in line)
            assert all(f"`{each}`" in row for each in labels), row


def test_workers_in_kubernetes_are_scaled_by_metrics_that_exist():
    scaled = yaml.safe_load((ROOT / "docker" / "kubernetes" / "keda.yaml").read_text())
    (trigger,) = scaled["spec"]["triggers"]
    test_an_expression_names_what_the_metrics_have(trigger["metadata"]["query"])
