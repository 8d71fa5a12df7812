"""The alerts ask for exported metrics by labels that they have, and the runbook has each of them."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from streams.cli.program import _parsed
from streams.core.metrics import INTENDED_REASONS, LATE_REASONS, SENSORS, DropReason
from streams.telemetry.prometheus import name_of

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "prometheus" / "alerts.yaml"
PAGE = (ROOT / "docs" / "guide" / "runbook.md").read_text()
RULES = {rule["alert"]: rule for rule in yaml.safe_load(FILE.read_text())["groups"][0]["rules"]}
#: The labels of each exported name. Prometheus adds the instance.
LABELS = {
    name_of(spec, metric): {tag.replace("-", "_") for tag in spec.scope.tags} | {"instance"}
    for spec in reversed(SENSORS)
    for metric in spec.metrics
}
for spec in SENSORS:
    for metric in spec.metrics:
        LABELS[name_of(spec, metric)] |= {tag.replace("-", "_") for tag in spec.scope.tags}


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_has_exported_names_and_their_labels(alert: str) -> None:
    rule = RULES[alert]
    names = re.findall(r"kafka_streams_\w+", rule["expr"])
    grouped = [label for labels in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in labels.split(", ")]
    used = {*grouped, *re.findall(r"[{,](\w+)[!=]~", rule["expr"])}
    told = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))

    assert names
    for name in names:
        assert name in LABELS
        assert {*grouped} <= LABELS[name]
    assert used <= LABELS[names[0]]
    assert told <= ({*grouped} or LABELS[names[0]])
    assert rule["labels"]["severity"] in {"critical", "warning"}


def test_the_reasons_of_drops_are_those_of_the_code() -> None:
    late = set(re.findall(r'reason=~"([^"]*)"', RULES["StreamsLateShare"]["expr"])[0].split("|"))
    others = set(re.findall(r'reason!~"([^"]*)"', RULES["StreamsRecordsLost"]["expr"])[0].split("|"))

    assert late == set(map(str, LATE_REASONS))
    assert others == {str(reason) for reason in DropReason if reason in LATE_REASONS or reason in INTENDED_REASONS}


def test_the_runbook_has_each_alert_and_no_other() -> None:
    assert re.findall(r"^## (Streams\w+)$", PAGE, re.MULTILINE) == list(RULES)


@pytest.mark.parametrize("command", sorted({*re.findall(r"`streams ([a-z][^`]*)`", PAGE)}))
def test_what_the_runbook_types_is_understood(command: str) -> None:
    if command != "top":
        assert _parsed(shlex.split(command.replace("HOST:PORT", "localhost:9092")))


@pytest.mark.deploy
def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    """Its parser of rule files, which promtool uses: expressions, templates, fields; a wrong one is refused."""
    program = shutil.which("rules")
    assert program is not None, "make deploy-test builds it with Go"
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(FILE.read_text().replace(" == 0", " === 0"))

    assert subprocess.run([program, FILE], check=False, capture_output=True, text=True).stdout == ""
    assert subprocess.run([program, wrong], check=False, capture_output=True).returncode == 1
