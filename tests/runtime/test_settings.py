"""Each setting is heeded, in the kinds of runs that it is meant for."""

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from streams import (
    Admin,
    ConfigError,
    Consumer,
    EmbeddedBroker,
    Producer,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    Topic,
    TopicPartition,
)
from streams.bounded import run_bounded
from streams.clients import NoOffsetError
from streams.core.blocks.records import Block
from streams.core.settings import client_settings
from streams.core.settings import config as config_module
from streams.core.settings import setting as setting_module
from streams.core.settings.client_settings import (
    ClientSettings,
    ConnectionSettings,
    ConsumerSettings,
    ProducerSettings,
    Security,
)
from streams.core.settings.config import SETTINGS
from streams.core.settings.setting import SECRET_FORMS
from streams.testing import TopologyTestDriver, simulate
from tests.waiting import WATCHDOG_MS, until

visits = Topic("visits", key=str, value=int)
counts = Topic("counts", key=str, value=int)
VISITS, COUNTS = TopicPartition("visits", 0), TopicPartition("counts", 0)


def counting(builder: StreamsBuilder) -> None:
    stream = builder.stream(visits)
    stream.select_key(lambda key, value: str(value)).group_by_key().count("n").to_stream(tombstones=False).to(counts)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        broker.create_topic("visits", 1)
        broker.create_topic("counts", 1)
        yield broker


def _ended_or(streams: Streams, is_done: Any) -> None:
    while not (is_done() or streams.wait(5)):
        pass


#: Settings that only what goes wrong, many instances or another kind of run has read; with the tests that show it.
_READ_SELDOM = {
    "columns": "tests/replay/test_columns.py",
    "flight_recorder_retention_ms": "tests/capsule/test_reproduced.py",
    "fsync": "tests/runtime/test_lost_ends.py",
    "lost_records": "tests/runtime/test_losses.py",
    "max_cycle_rounds": "tests/runtime/test_rounds.py",
    "probing_rebalance_interval_ms": "tests/testing/simulation",
    "processing_exception_handler_global_enabled": "tests/runtime/test_handlers.py",
    "sasl_mechanism": "tests/clients/tcp/test_security.py",
    "sasl_username": "tests/clients/tcp/test_security.py",
    "ssl_ca_location": "tests/clients/tcp/test_security.py",
    "ssl_certificate_location": "tests/clients/tcp/test_security.py",
    "ssl_key_location": "tests/clients/tcp/test_security.py",
    **dict.fromkeys((f"ssl_key_password{form}" for form in SECRET_FORMS), "tests/clients/tcp/test_mutual_tls.py"),
    **dict.fromkeys((f"sasl_password{form}" for form in SECRET_FORMS), "tests/cli/test_configuration.py"),
    **dict.fromkeys(
        (name for name in SETTINGS if name.startswith("sasl_oauthbearer_")), "tests/clients/tcp/test_oauth.py"
    ),
    "openlineage_namespace": "tests/telemetry/test_lineage.py",
    "otlp_interval_ms": "tests/telemetry/test_otel.py",
    "otlp_traces_per_million": "tests/telemetry/test_otel.py",
    "task_timeout_ms": "tests/testing/simulation",
    "transaction_timeout_ms": "tests/runtime/test_exactly_once.py",
}


#: Where settings are declared and copied; of these only the named functions stand for the settings that they read.
_TABLES = {module.__file__ for module in (config_module, client_settings, setting_module)}
_MEANINGS = (
    "is_exactly_once",
    "tags",
    "assignment_tags",
    "check_membership",
    "is_idempotent",
    "_may_be_idempotent",
    "has_tls",
    "has_sasl",
)


def _noting(read: set[str]) -> Callable[[Any, str], Any]:
    """Return a ``__getattribute__`` that notes the names which are read outside the tables."""

    def noted(self: Any, name: str) -> Any:
        code = sys._getframe(1).f_code
        if (code.co_filename not in _TABLES or code.co_name in _MEANINGS) and "attr" not in code.co_filename:
            read.add(name)
        return object.__getattribute__(self, name)

    return noted


def test_every_setting_is_read_by_a_live_application(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Seen at work: what a file merely names might be a setting of something else."""
    read: set[str] = set()
    for group in (StreamsConfig, ClientSettings, ConnectionSettings, ConsumerSettings, ProducerSettings, Security):
        monkeypatch.setattr(group, "__getattribute__", _noting(read))
    with broker.serve("127.0.0.1:0") as server:
        settings = {"bootstrap_servers": server.bootstrap_servers, "state_dir": tmp_path}
        with Streams(counting, application_id="read", **settings) as streams, Producer(broker) as producer:
            producer.send(visits, 1, key="a").result()
            _ended_or(streams, lambda: broker.end_offset(COUNTS))

    assert SETTINGS.keys() - read - _READ_SELDOM.keys() == set(), "nothing reads it, or another kind of run: say so"


@pytest.mark.parametrize(("level", "expected"), [("read_uncommitted", 1), ("read_committed", 0)])
def test_open_transactions_of_others_are_read_as_the_isolation_level_says(broker, level, expected):
    kept_open = {"transactional_id": "other", "transaction_timeout_ms": WATCHDOG_MS}
    with Producer(broker, **kept_open) as other, Producer(broker) as producer:
        other.init_transactions()
        other.begin_transaction()
        other.send(visits, 1, key="a").result()
        settings = {"isolation_level": level, "poll_ms": 1, "commit_interval_ms": 1}

        with Streams(counting, application_id="isolated", broker=broker, **settings) as streams:
            # A topic of its own tells that the application has read so far as it may.
            if expected:
                _ended_or(streams, lambda: broker.end_offset(COUNTS))
            other.abort_transaction()
            producer.send(visits, 7, key="b").result()
            _ended_or(streams, lambda: broker.end_offset(COUNTS) > expected)

    with Consumer(broker, auto_offset_reset="earliest") as consumer:
        consumer.assign([COUNTS], [counts])
        found: list[str] = []
        until(lambda: len(found) > expected, lambda: found.extend(record.key for record in consumer.poll(100)))
    assert found == ["1", "7"][1 - expected :]


def test_no_committed_offset_is_an_error_where_the_reset_policy_is_none(broker):
    streams = Streams(counting, application_id="strict", broker=broker, auto_offset_reset="none")
    try:
        streams.start()
        with pytest.raises(NoOffsetError, match="'strict' has no committed offset, and its offset_reset"):
            _ended_or(streams, lambda: False)
    finally:
        with suppress(NoOffsetError):
            streams.close()


def test_reset_policy_none_refuses_a_partition_that_was_added_to_the_topic_and_reads_repartition_topics(broker):
    def committed(partition: TopicPartition, offset: int) -> None:
        with Consumer(broker, "strict") as consumer:
            consumer.assign([partition])
            consumer.commit_sync({partition: offset})

    settings = {"application_id": "strict", "broker": broker, "auto_offset_reset": "none"}
    Admin(broker).create_partitions({"visits": 2})
    with Producer(broker) as producer:
        for partition in (0, 1):
            producer.send(visits, 1, key="a", partition=partition).result()
    committed(VISITS, 0)

    streams = Streams(counting, **settings)
    streams.start()
    with pytest.raises(NoOffsetError, match="visits-1: application 'strict' has no committed offset"):
        _ended_or(streams, lambda: False)
    with suppress(NoOffsetError):
        streams.close()

    committed(TopicPartition("visits", 1), 0)
    with Streams(counting, **settings, num_stream_threads=2) as streams:
        _ended_or(streams, lambda: broker.end_offset(COUNTS) == 2)


def test_kafkas_names_are_taken_where_a_kind_of_run_has_defaults_of_its_own():
    with TopologyTestDriver(counting, **{"statestore.cache.max.bytes": 1000}) as driver:
        assert driver.config.cache_max_bytes == 1000
    with run_bounded(counting, {}, application_id="named", settings={"statestore.cache.max.bytes": 1000}):
        pass
    simulate(counting, {visits: [("a", 1, 1)]}, seeds=[1], storm_ms=1_000, **{"session.timeout.ms": 5_000})


def test_state_folder_of_the_settings_is_that_of_a_bounded_run(tmp_path: Path) -> None:
    def rows(partitions: int, skip: int) -> Iterator[list[tuple[int, Block]]]:
        yield [(0, Block([b"a"], [bytes(8)], [1], None, range(1)))]

    with run_bounded(counting, {"visits": rows}, application_id="kept", settings={"state_dir": tmp_path}):
        pass

    assert (tmp_path / "broker").is_dir()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"acks": 1, "processing_guarantee": "exactly_once_v2"}, "acks=1 and exactly_once_v2 exclude each other"),
        ({"max_in_flight_requests": 6}, "at least 1, at most 5, not 6"),
        ({"buffer_memory_bytes": 0}, "at least 1, not 0"),
        ({"security_protocol": "ssl"}, "security_protocol: for connections to a cluster; give bootstrap_servers="),
    ],
)
def test_settings_that_would_have_no_effect_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Streams(counting, application_id="refused", **settings)
