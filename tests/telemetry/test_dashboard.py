"""The dashboard asks for metrics that are exported, by labels that they have."""

import json
import re
from pathlib import Path

import pytest

from streams.core.metrics import SENSORS
from streams.telemetry.prometheus import name_of

DASHBOARD = json.loads((Path(__file__).parents[2] / "docs" / "grafana.json").read_text(encoding="utf-8"))
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
    [name] = re.findall(r"kafka_(?:streams|consumer|producer)_\w+", query)
    grouped = re.search(r"by \(([^)]*)\)", query)
    labels = re.findall(r"{{(\w+)}}", legend)

    assert name in LABELS
    assert {*labels} <= LABELS[name]
    if grouped is not None:
        assert {*labels} <= {*grouped[1].split(", ")} <= LABELS[name]


def test_panels_do_not_overlap():
    taken = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    assert max(x for x, _ in taken) < 24
