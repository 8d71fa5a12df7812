"""Settings of the environment and of a TOML file: which one is used, and what is said of a wrong one."""

from pathlib import Path

import pytest

from streams import ConfigError, StreamsConfig, load_settings

FILE = """\
application_id = "shop"
linger.ms = 5          # Kafka's dotted name
deserialization_handler = "tests.core.test_setting_sources:skip"
bootstrap_servers = ["one:9092", "two:9092"]

[sasl]
username = "ann"
password_file = "/run/secrets/kafka"

[security]
protocol = "sasl_plaintext"
"""


def skip(context, record, error):
    raise NotImplementedError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "app.toml"
    path.write_text(FILE)
    return path


def test_argument_comes_before_environment_before_file_before_default(file: Path) -> None:
    environment = {"STREAMS_LINGER_MS": "6", "STREAMS_POLL_MS": "7", "STREAMS_ACKS": "", "HOME": "/"}

    found = load_settings(file, environment=environment, poll_ms=8)

    config = StreamsConfig.of(**found)
    assert (config.producer.linger_ms, config.poll_ms, config.producer.acks) == (6, 8, "all")
    assert (config.application_id, config.bootstrap_servers) == ("shop", "one:9092,two:9092")
    assert config.deserialization_handler is skip
    assert config.security.sasl_password_file == "/run/secrets/kafka"


def test_a_secret_takes_the_place_of_its_file_and_its_command(file: Path) -> None:
    found = load_settings(file, environment={"STREAMS_SASL_PASSWORD": "hunter2"})

    assert found["sasl_password"] == "hunter2"
    assert "sasl_password_file" not in found


def test_what_kubernetes_says_of_a_service_is_no_setting() -> None:
    variables = ("STREAMS_PORT", "STREAMS_SERVICE_HOST", "STREAMS_PORT_9092_TCP_ADDR", "STREAMS_UI_SERVICE_PORT_HTTP")

    assert load_settings(environment=dict.fromkeys(variables, "10.0.0.1")) == {}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("STREAMS_LINGR_MS", "5", r"variable STREAMS_LINGR_MS: unknown .*: did you mean STREAMS_LINGER_MS\?"),
        ("STREAMS_LINGER_MS", "soon", "variable STREAMS_LINGER_MS: setting 'linger_ms': expected a whole number"),
        ("STREAMS_PROCESSING_HANDLER", "json:nothing", "module 'json' has no function 'nothing'"),
        ("STREAMS_PROCESSING_HANDLER", "no_such:f", "module 'no_such' cannot be imported"),
    ],
)
def test_wrong_variable_is_named(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_settings(environment={name: value})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\n", "line 1: unknown setting 'a'"),
        ("\n[linger]\n# note\nmss = 1\n", r"line 4: unknown setting 'linger_mss': did you mean linger_ms\?"),
        ("poll_ms = 1\nlinger_ms = 1.5\n", "line 2: setting 'linger_ms': expected a whole number"),
        ("poll_ms = 1\npoll.ms = 1\n", "line 2: 'poll_ms' is given twice"),
        ("poll_ms =\n", "is not TOML: .*line 1"),
        ("sasl_password = 5\n", "line 1: setting 'sasl_password': expected text, not the given value"),
    ],
)
def test_wrong_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "app.toml"
    path.write_text(text)

    with pytest.raises(ConfigError, match=rf"app\.toml.*{message}"):
        load_settings(path, environment={})


def test_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read"):
        load_settings("none.toml")


@pytest.mark.parametrize(
    "text", ['client_tags = { zone = "a" }', '[client_tags]\nzone = "a"', 'client_tags = "zone=a"']
)
def test_tags_in_a_file_are_a_table_or_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "app.toml"
    path.write_text(text)

    assert load_settings(path, environment={"STREAMS_RACK_AWARE_ASSIGNMENT_TAGS": "zone"}) == {
        "client_tags": "zone=a",
        "rack_aware_assignment_tags": "zone",
    }
