"""``streams capture`` and ``streams reproduce``: a live run as a file, run again."""

import resource
import zipfile

import pytest

from streams import EmbeddedBroker, Producer, Streams, StreamsBuilder, StreamsConfig, StreamsError, Topic
from streams.capsule.capsule import Capsule
from streams.capsule.capture import captured_settings
from streams.clients import Admin
from tests import programs
from tests.waiting import until

SCRIPT = """\
from streams import StreamsBuilder, Topic

orders = Topic("orders", key=str, value=int)
large = Topic("large", key=str, value=int)


def is_large(user: str, amount: int) -> bool:
    return amount > 10


def topology(builder: StreamsBuilder) -> None:
    stream = builder.stream(orders).filter(is_large, name="large-only")
    stream.group_by_key().reduce(lambda a, b: a + b, "sums").to_stream().to(large)
"""
orders = Topic("orders", key=str, value=int)
large = Topic("large", key=str, value=int)


def topology(builder: StreamsBuilder) -> None:
    stream = builder.stream(orders).filter(lambda _, amount: amount > 10, name="large-only")
    stream.group_by_key().reduce(lambda a, b: a + b, name="sums").to_stream().to(large)


@pytest.fixture
def recorded(streams, tmp_path):
    """A folder in which an application has run with its flight recorder on."""
    streams.write("shop.py", SCRIPT)
    with EmbeddedBroker(tmp_path / "state" / "broker") as broker:
        settings = {"flight_recorder": True}
        with Streams(topology, application_id="shop", broker=broker, **settings) as running:
            with Producer(broker) as producer:
                for key, amount in (("ann", 20), ("bob", 5), ("ann", 30)):
                    producer.send(orders, amount, key=key, timestamp_ms=amount)
            until(lambda: running.metrics.get("process-total") >= 3)
    done = streams(
        *("capture", "shop.py", "--state-dir", "state", "-o", "shop.capsule"),
        *("--set", "flight_recorder=true", "--set", "sasl_password=hunter2", "--set", "sasl_username=me"),
        *("--set", "security_protocol=sasl_plaintext", "--set", "sasl_mechanism=plain"),
    )
    assert done.status == 0, done.err
    return done


def test_a_capsule_is_reproduced(recorded, streams):
    assert recorded.out.startswith("shop.capsule: 3 records in ")
    done = streams("reproduce", "shop.capsule")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("the same: 4 records (2 outputs, 2 changelog entries)") or done.out.startswith(
        "the same: 3 records (2 outputs, 1 changelog entries)"
    )


def test_capsule_for_a_folder_that_is_not_there_is_an_error(recorded, streams):
    done = streams("capture", "shop.py", "--state-dir", "state", "-o", "nowhere/shop.capsule")

    assert done.status == 1
    assert "nowhere/shop.capsule: the capsule cannot be written: No such file or directory; give a file in" in done.err


def test_capsule_stays_until_another_one_is_complete(recorded, tmp_path):
    path = tmp_path / "shop.capsule"
    before = path.read_bytes()
    capsule = Capsule.read(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))  # as a full disk
    try:
        with pytest.raises(StreamsError, match="the capsule cannot be written: File too large"):
            capsule.write(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir() if "capsule" in file.name] == ["shop.capsule"]


def test_secrets_are_left_out(recorded, tmp_path):
    data = (tmp_path / "shop.capsule").read_bytes()
    assert "sasl_password" in recorded.out
    assert b"hunter2" not in data


def test_another_version_of_the_script_shows_the_first_difference(recorded, streams):
    streams.write("fixed.py", SCRIPT.replace("amount > 10", "amount > 1"))
    done = streams("reproduce", "shop.capsule", "--script", "fixed.py")
    assert done.status == 1
    assert "large-0, one more record" in done.out or "large-0 offset 1" in done.out


def test_a_task_is_stepped_forward_and_back(recorded, tmp_path):
    commands = "n\nn\np sums ann\nn 2\np sums ann\nb\np sums\nq\n"
    arguments = ["-m", "streams", "reproduce", "shop.capsule", "--task", "0_0", "--step"]
    done = programs.run(arguments, text=commands, cwd=tmp_path)
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[0].startswith("1  opened")
    assert any(line.startswith("2  took orders-0 offset 0") for line in lines)
    assert any(line.startswith("large-only forwarded 'ann': 20") for line in lines)
    rows = [line for line in lines if line.startswith("'ann': ")]
    assert ["value=20" in row for row in rows] == [True, False, True]
    assert "value=50" in rows[1]


LEAKY = SCRIPT + '\nAPI_TOKEN = "hunter2"\nDATABASE = "postgresql://me:hunter2@db/shop"\n'
SECRETS = {
    "sasl_password": "hunter2",
    "sasl_username": "hunter2",
    "sasl_mechanism": "plain",
    "security_protocol": "sasl_ssl",
    "ssl_key_location": "/keys/hunter2.pem",
    "ssl_certificate_location": "/keys/hunter2.crt",
    "ssl_ca_location": "/keys/hunter2.ca",
    "otlp_endpoint": "http://me:hunter2@collector:4318",
    "application_server": "hunter2:80",
}


@pytest.mark.slow
def test_a_live_application_that_was_killed_is_captured_and_reproduced_without_secrets(streams, tmp_path):
    """What the last commit has not reached is not in the capsule; all else is the same."""
    streams.write("shop.py", LEAKY)
    with EmbeddedBroker(tmp_path / "broker") as broker, broker.serve("127.0.0.1:0") as server:
        broker.create_topic("orders")
        broker.create_topic("large")
        where = ("--bootstrap-servers", server.bootstrap_servers)
        recorded = ("--set", "flight_recorder=true", "--set", "commit_interval_ms=20")
        process = streams.start("run", "shop.py", *where, *recorded)
        with Producer(broker) as producer, Admin(broker) as admin:
            for number in range(30):
                producer.send(orders, number, key="ann", timestamp_ms=number)
                producer.flush()
                until(lambda number=number: committed(admin) > number // 2)
        process.kill()
        process.communicate()

        captured = streams("capture", "shop.py", *where, *recorded, "-o", "shop.capsule")
        assert captured.status == 0, captured.err
    assert "API_TOKEN (shop.py:15)" in captured.out
    assert "an address with a password (shop.py:16)" in captured.out
    done = streams("reproduce", "shop.capsule")
    assert (done.status, done.err) == (0, "")
    assert int(done.out.rpartition("from ")[2].partition(" ")[0]) >= 15
    with zipfile.ZipFile(tmp_path / "shop.capsule") as archive:
        assert all(b"hunter2" not in archive.read(name) for name in archive.namelist())


def committed(admin):
    return sum(found.offset for found in admin.committed_offsets("shop").values())


def test_no_setting_with_a_secret_is_in_a_capsule():
    """Checked on the settings alone: with them no broker of this test would answer."""
    kept, left_out = captured_settings(StreamsConfig.of(application_id="shop", poll_ms=7, **SECRETS))
    assert kept == {"application_id": "shop", "poll_ms": 7}
    assert {*SECRETS} - {"sasl_mechanism"} <= {*left_out}
