"""The alerts ask for exported metrics by labels that they have, and the runbook has each of them."""

import os
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


#: Counters of drops and of dead letters at a node for a reason.
DROPS = 'kafka_streams_stream_processor_node_metrics_dropped_records_total{{processor_node_id="{}",reason="{}"}}'
LETTERS = DROPS.replace("dropped_records", "dead_letter_records")
#: Drops that begin after 20 minutes, as tests of Prometheus have them: with a letter each, without, for some, and late.
SERIES = f"""
load 1m
  {DROPS.format("sent", "failed, ValueError")} _x20 5x40
  {LETTERS.format("sent", "failed, ValueError")} _x20 5x40
  {DROPS.format("lost", "null key")} _x20 7x40
  {DROPS.format("some", "failed, ValueError")} 0x20 6+1x40
  {LETTERS.format("some", "failed, ValueError")} 0x20 2x40
  {DROPS.format("late", "late")} _x20 7x40
  kafka_streams_stream_task_metrics_dead_letters_total{{task_id="0_0"}} _x20 5x40
"""


def checked(test: str, file: Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("rules")
    assert program is not None, "make deploy-test builds it with Go"
    environment = os.environ | {"RULES_FILE": str(file)}
    return subprocess.run([program, "-test.run", test], env=environment, check=False, capture_output=True, text=True)


@pytest.mark.deploy
def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    """Its parser of rule files, which promtool uses: expressions, templates, fields; a wrong one is refused."""
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(FILE.read_text().replace(" == 0", " === 0"))

    assert checked("TestFile", FILE).stdout == "PASS\n"
    assert checked("TestFile", wrong).returncode == 1


@pytest.mark.deploy
def test_what_was_lost_is_alerted_from_its_first_record_on_and_what_was_sent_to_letters_is_not(tmp_path: Path) -> None:
    lost, sent = (" ".join(RULES[alert]["expr"].split()) for alert in ("StreamsRecordsLost", "StreamsDeadLetters"))
    script = tmp_path / "script.txt"
    script.write_text(f"""{SERIES}
eval instant at 19m {lost}

eval instant at 23m {lost}
  {{processor_node_id="lost", reason="null key"}} 7
  {{processor_node_id="some", reason="failed, ValueError"}} 6

eval instant at 23m {sent}
  {{task_id="0_0"}} 5

eval instant at 40m {lost}
  {{processor_node_id="some", reason="failed, ValueError"}} 10

eval instant at 40m {sent}
""")

    assert checked("TestScript", script).stdout == "PASS\n"
