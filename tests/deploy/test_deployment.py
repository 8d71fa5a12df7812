"""What is in ``deploy`` fits the product: options, settings, exit statuses, probes, and modules that are compiled."""

import configparser
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from streams import EmbeddedBroker, Streams, StreamsBuilder, Topic
from streams.core.settings.config import SETTINGS
from tests import programs
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "streams"
UNIT = ROOT / "deploy" / "systemd" / "streams@.service"
EVERYTHING = CHART / "ci-values.yaml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize(("template", "command"), [("statefulset.yaml", "run"), ("cleanup-job.yaml", "reset")])
def test_the_chart_gives_options_and_settings_that_are_there(template, command):
    text = (CHART / "templates" / template).read_text().split("args:")[1].split("env:")[0]
    options = set(re.findall(r"^ *- (--[a-z-]+)", text, re.MULTILINE)) | set(re.findall(r'"(--[a-z-]+)=', text))

    known = programs.run(["-m", "streams", command, "--help"], check=True)
    assert options
    assert [it for it in options if not re.search(rf"{it}\b", known.stdout)] == []
    assert {"group_instance_id", "application_server"} <= SETTINGS.keys()


def test_probes_follow_the_state_of_an_application(tmp_path):
    """The program of the probes, with the token of the server."""
    orders = Topic("orders", key=str, value=int)

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).group_by_key().count("counts")

    (tmp_path / "token").write_text("secret\n")
    helper = (CHART / "templates" / "_helpers.tpl").read_text()
    program = " ".join(line.strip() for line in helper.split(">-\n")[1].split("{{- end")[0].splitlines())

    def probe(path: str) -> int:
        text = program.replace("{{ .port }}", str(port)).replace("{{ .path }}", path).replace("{{ .timeout }}", "300")
        text = text.replace("/etc/streams/token/token", str(tmp_path / "token"))
        assert "{{" not in text
        return subprocess.run([sys.executable, "-I", "-c", text], capture_output=True, check=False).returncode

    with EmbeddedBroker() as broker:
        broker.create_topic(orders, partitions=1)
        streams = Streams(topology, application_id="shop", broker=broker)
        port = int(streams.serve("127.0.0.1:0", token="secret").url.rpartition(":")[2])
        assert probe("/ready") == 1
        with streams:
            until(lambda: streams.state.name == "RUNNING")
            assert probe("/ready") == 0
            assert probe("/live") == 0
        assert probe("/ready") == 1


def test_the_unit_runs_a_service_that_notifies():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(UNIT)
    service = unit["Service"]

    assert service["Type"] == "notify"
    assert service["RestartPreventExitStatus"] == "2 3"
    assert service["ExecStart"].startswith("/opt/streams/bin/streams run ")
    if shutil.which("systemd-analyze"):
        said = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(UNIT)], capture_output=True, text=True, check=False
        )
        strange = [line for line in said.stderr.splitlines() if "is not executable: No such file" not in line]
        assert [line for line in strange if "streams@" in line] == []


def test_wheels_and_image_are_checked_for_all_compiled_modules():
    modules = [it["name"] for it in PROJECT["tool"]["setuptools"]["ext-modules"]]
    image = (ROOT / "deploy" / "Containerfile").read_text()

    for module in modules:
        package, _, name = module.rpartition(".")
        for text in (PROJECT["tool"]["cibuildwheel"]["test-command"], image):
            assert re.search(rf"from {re.escape(package)} import [\w, ]*\b{name}\b", text), module


def test_only_the_pod_can_read_its_token():
    """Kubernetes would let all users read it, of which each start would warn."""
    volume = (CHART / "templates" / "statefulset.yaml").read_text().split("secret:\n")[1].split("{{- end }}")[0]

    assert re.search(r"^ *defaultMode: 0440$", volume, re.MULTILINE)
    assert yaml.safe_load((CHART / "values.yaml").read_text())["podSecurityContext"]["fsGroup"]


def test_versions_agree():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert chart["appVersion"] == chart["version"] == PROJECT["project"]["version"]


def test_values_fit_their_schema():
    import jsonschema

    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())

    with pytest.raises(jsonschema.ValidationError, match="does not match"):
        jsonschema.validate(defaults, schema)
    everything = yaml.safe_load(EVERYTHING.read_text())
    jsonschema.validate(defaults | everything, schema)
    with pytest.raises(jsonschema.ValidationError, match="'KAFKA_PASSWORD' does not match"):
        jsonschema.validate(defaults | everything | {"secrets": {"KAFKA_PASSWORD": everything["secrets"]}}, schema)
    assert everything["secrets"].keys() <= SETTINGS.keys()


# --- with helm and a registry of packages (make deploy-test) ------------------------------------------------------


def helm(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["helm", *arguments], cwd=CHART.parent, capture_output=True, text=True, check=False)


def rendered(*arguments: str) -> dict[str, dict]:
    done = helm("template", "shop", "streams", "--kube-version", "1.30.0", *arguments)
    assert done.returncode == 0, done.stderr
    return {it["kind"]: it for it in yaml.safe_load_all(done.stdout) if it}


SMALLEST = ("--set", "applicationId=shop", "--set", "bootstrapServers=kafka:9092")


@pytest.mark.deploy
@pytest.mark.parametrize("values", [SMALLEST, ("-f", "streams/ci-values.yaml")], ids=["smallest", "everything"])
def test_helm_lint_accepts_the_chart(values):
    done = helm("lint", "streams", "--strict", *values)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.deploy
def test_rendered_chart_has_what_values_ask_for():
    few, all_of_them = rendered(*SMALLEST), rendered("-f", "streams/ci-values.yaml")

    assert set(few) == {"StatefulSet", "Service", "Secret", "ServiceAccount", "PodDisruptionBudget"}
    assert set(all_of_them) == {*few, "ConfigMap", "PodMonitor", "ScaledObject", "Job"}
    assert few["StatefulSet"]["spec"]["replicas"] == 2
    assert "replicas" not in all_of_them["StatefulSet"]["spec"]
    (container,) = all_of_them["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert "--set=group_instance_id=$(POD_NAME)" in container["args"]
    assert "--set=processing_guarantee=exactly_once_v2" in container["args"]
    names = [it["name"] for it in container["env"]]
    assert names == ["POD_NAME", "POD_NAMESPACE", "STREAMS_SASL_PASSWORD"]
    (cleaning,) = all_of_them["Job"]["spec"]["template"]["spec"]["containers"]
    for given in (container, cleaning):
        assert "sasl_password" not in " ".join(given["args"])
        assert [it["name"] for it in given["env"] if "valueFrom" in it][-1] == "STREAMS_SASL_PASSWORD"
    (trigger,) = all_of_them["ScaledObject"]["spec"]["triggers"]
    assert trigger["metadata"]["consumerGroup"] == "shop"
    refused = helm("template", "shop", "streams", "--kube-version", "1.30.0", *SMALLEST, "--set", "workers=2")
    assert "each worker has a port of its own" in refused.stderr


@pytest.mark.deploy
def test_a_wheel_is_installed_without_a_compiler_and_a_project_with_it(tmp_path):
    """Built for this Python from a copy of the sources, into an environment that has nothing else."""
    copy = tmp_path / "sources"
    ignored = shutil.ignore_patterns("*.so", "*.egg-info", "build", "__pycache__", ".*")
    shutil.copytree(ROOT / "streams", copy / "streams", ignore=ignored)
    for name in ("Makefile", "pyproject.toml", "README.md", "LICENSE", "streams_pytest.py"):
        shutil.copy(ROOT / name, copy / name)
    pip = ["-m", "pip", "--disable-pip-version-check", "--quiet"]
    # What is installed for the tests stays as it is.
    said = subprocess.run(
        ["make", "-C", str(copy), "--old-file", f"{sys.prefix}/.base", "wheel", f"VENV={sys.prefix}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    (wheel,) = (copy / "dist").glob("streams-*.whl")
    assert f"pip install '{wheel}[web]'" in said.stdout
    assert "none-any" not in wheel.name
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    folder = tmp_path / "venv" / "bin"
    environment = {"PATH": str(folder), "HOME": str(tmp_path)}
    python = str(folder / "python")
    assert shutil.which("cc", path=str(folder)) is None
    subprocess.run([python, *pip, "install", str(wheel)], env=environment, check=True)

    check = PROJECT["tool"]["cibuildwheel"]["test-command"].partition("python -c ")[2].strip('"')
    subprocess.run([python, "-I", "-c", check], env=environment, check=True)
    plugins = "from importlib.metadata import entry_points; print([it.value for it in entry_points(group='pytest11')])"
    said = subprocess.run([python, "-I", "-c", plugins], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "['streams_pytest']"
    subprocess.run([str(folder / "streams"), "new", "shop"], cwd=tmp_path, env=environment, check=True)
    command = ["run", "shop.py", "--input", "orders=orders.jsonl", "--output", "revenue=-"]
    streams = [str(folder / "streams"), *command]
    ran = subprocess.run(streams, cwd=tmp_path / "shop", env=environment, capture_output=True, text=True, check=True)
    assert len(ran.stdout.splitlines()) == 4
    hint = subprocess.run(
        [str(folder / "streams"), "completion", "bash"], env=environment, capture_output=True, text=True, check=False
    ).stderr
    assert f"pip install '{wheel}[completion]'" in hint
    subprocess.run([python, *pip, "install", "--editable", f"{tmp_path}/shop[test]"], env=environment, check=True)
    for tool in ("pytest", "mypy"):
        subprocess.run([str(folder / tool)], cwd=tmp_path / "shop", env=environment, check=True)
