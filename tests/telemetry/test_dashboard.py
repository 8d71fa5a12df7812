"""The dashboard asks for metrics that are exported, by labels that they have."""

import json
import re
from pathlib import Path

import pytest
import yaml

from streams.core.metrics import SENSORS
from streams.telemetry.prometheus import name_of

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "docs" / "grafana.json").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))
RULES = {rule["alert"]: rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]}
NAMES = re.compile(r"kafka_(?:streams|consumer|producer)_\w+")
TARGETS = [
    (panel["title"], target["expr"], target["legendFormat"])
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
]
#: The labels of each exported name; the label of a store has the type of the store before it.
LABELS = {
    name_of(spec, metric): {tag.replace("-", "_") for tag in spec.scope.tags} | {"rocksdb_state_id"}
    for spec in SENSORS
    for metric in spec.metrics
}


@pytest.mark.parametrize(("title", "query", "legend"), TARGETS)
def test_a_query_has_exported_names_and_their_labels(title: str, query: str, legend: str):
    grouped = re.search(r"by \(([^)]*)\)", query)
    labels = re.findall(r"{{(\w+)}}", legend)
    names = NAMES.findall(query)

    assert names
    for name in names:
        assert name in LABELS
        assert {*labels} <= LABELS[name]
        if grouped is not None:
            assert {*labels} <= {*grouped[1].split(", ")} <= LABELS[name]


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_has_panels_of_what_it_asks_for(alert: str):
    """A rate and a total of one sensor are the same to whoever looks."""
    shown = {re.sub("_(total|rate)$", "", name) for _, query, _ in TARGETS for name in NAMES.findall(query)}

    assert {re.sub("_(total|rate)$", "", name) for name in NAMES.findall(RULES[alert])} <= shown


def test_panels_do_not_overlap():
    taken = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    assert max(x for x, _ in taken) < 24
