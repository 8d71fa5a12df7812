"""``--config`` and the environment as typed, and secrets, which no list of processes and no log shows."""

import sys
from pathlib import Path

import pytest

from streams import Producer
from streams.broker import EmbeddedBroker
from tests.cli.test_workers import children
from tests.kafka.processes import Started
from tests.waiting import until

SCRIPT = """\
from streams import StreamsBuilder, Topic

lines = Topic("lines", key=str, value=str)
copies = Topic("copies", key=str, value=str)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(lines).to(copies)
"""
SECRET = "hunter2-of-this-test"
USER = ("--set", "security_protocol=sasl_plaintext", "--set", "sasl_username=ann")


@pytest.fixture
def broker():
    with EmbeddedBroker() as broker:
        broker.create_topic("lines", 2)
        broker.create_topic("copies", 2)
        yield broker


def test_broker_and_password_of_a_file_are_used_by_a_command(broker, streams, monkeypatch):
    streams.write("password", f"{SECRET}\n").chmod(0o600)
    with broker.serve("127.0.0.1:0", users={"ann": SECRET}) as server:
        streams.write(
            "app.toml",
            f'bootstrap_servers = "{server.bootstrap_servers}"\nstate_dir = "state"\n'
            'security_protocol = "sasl_plaintext"\nsasl_password_file = "password"\nsasl_username = "nobody"\n',
        )
        monkeypatch.setenv("STREAMS_SASL_USERNAME", "ann")
        done = streams("topics", "list", "--config", "app.toml")
        assert (done.status, done.out.split(), done.err) == (0, ["copies", "lines"], "")
        made = streams("topics", "create", "more", "--config", "app.toml", "--topic-set", "retention.ms=1")
        assert made.status == 0, made.err


def test_wrong_variable_ends_a_command(streams, monkeypatch):
    monkeypatch.setenv("STREAMS_BOOTSTRAP_SERVER", "127.0.0.1:9")
    done = streams("topics", "list")
    assert done.status == 2
    assert "STREAMS_BOOTSTRAP_SERVER: unknown setting 'bootstrap_server': did you mean STREAMS_BOOTSTRAP_SERVERS?" in (
        done.err
    )


@pytest.mark.killed
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks processes up in /proc")
def test_password_is_in_no_list_of_processes_and_no_log(broker, tmp_path):
    """Workers get what is given on the command line of the first process, which warns about it; the log is whole."""
    (tmp_path / "app.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "streams", "run", str(tmp_path / "app.py"), "--workers", "2", "--debug", *USER]
    with broker.serve("127.0.0.1:0", users={"ann": SECRET}) as server:
        where = ("--bootstrap-servers", server.bootstrap_servers)
        with Started([*command, *where, "--set", f"sasl_password={SECRET}"], tmp_path / "log") as run:
            run.line_with("by 2 workers on ")
            assert "--set sasl_password: others on this machine see it in the list of processes" in run.said
            with Producer(broker) as producer:
                producer.send("lines", b"v", partition=0)
                producer.send("lines", b"v", partition=1)
            until(lambda: sum(broker.end_offset(("copies", number)) for number in range(2)) == 2)
            workers = children(run.process.pid)
            lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in workers]
            assert len(lines) == 2
            assert all(b"--worker" in line and SECRET.encode() not in line for line in lines)
            run.stop()
            assert SECRET not in run.said
