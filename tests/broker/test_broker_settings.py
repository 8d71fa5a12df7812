"""The settings of a broker by Kafka's names: its own, those of groups, and those of topics that have none."""

from pathlib import Path

import pytest

from streams import Consumer
from streams.broker import EmbeddedBroker
from streams.broker.broker_settings import TABLE, BrokerSettings
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import ConfigError, RecordTooLargeError
from streams.core.settings.setting import texts_of
from streams.protocol.admin_messages import ConfigResource, ConfigSource, DescribeConfigs, ResourceType
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import InitProducerId

SETTINGS = {
    "num.partitions": "3",
    "group.max.session.timeout.ms": "60000",
    "log.retention.ms": "5000",
    "message.max.bytes": "100",
}


def described(broker: EmbeddedBroker, kind: ResourceType, name: str) -> dict[str, tuple[str, ConfigSource]]:
    answers = []
    request = DescribeConfigs([ConfigResource(kind, name)])
    broker._machine.handle(request, 0, answers.append)
    return {row.name: (row.value, row.config_source) for row in answers[0].results[0].configs}


def test_topics_without_their_own_settings_have_those_of_the_broker():
    with EmbeddedBroker(settings=SETTINGS) as broker:
        broker.create_topic("plain")
        broker.create_topic("own", config={"retention.ms": "7000"})
        broker.alter_topic("plain", {"segment.ms": "1"})

        assert described(broker, ResourceType.TOPIC, "plain")["retention.ms"] == ("5000", ConfigSource.BROKER)
        assert described(broker, ResourceType.TOPIC, "own")["retention.ms"] == ("7000", ConfigSource.TOPIC)
        assert described(broker, ResourceType.TOPIC, "own")["segment.bytes"] == ("1073741824", ConfigSource.DEFAULT)
        with pytest.raises(RecordTooLargeError):
            broker.append(TopicPartition("plain", 0), Block([None], [b"v" * 200], [0]))


def test_a_topic_keeps_its_own_settings_only(tmp_path: Path):
    with EmbeddedBroker(tmp_path, settings=SETTINGS) as broker:
        broker.create_topic("words")
    with EmbeddedBroker(tmp_path, settings={"log.retention.ms": "9000"}) as broker:
        config = described(broker, ResourceType.TOPIC, "words")

    assert (config["retention.ms"][0], config["max.message.bytes"][0]) == ("9000", "1048588")


def test_a_broker_shows_all_its_settings():
    with EmbeddedBroker(settings=SETTINGS, default_partitions=2) as broker:
        config = described(broker, ResourceType.BROKER, "0")

    assert {name: config[name] for name in SETTINGS} == {
        name: (text, ConfigSource.BROKER) for name, text in SETTINGS.items()
    }
    assert config["log.segment.bytes"] == ("1073741824", ConfigSource.DEFAULT)


def test_what_is_shown_makes_the_same_settings():
    settings = BrokerSettings().with_texts(SETTINGS)
    shown = {name: text for name, text in settings.shown().items() if TABLE[name].doc}

    assert BrokerSettings().with_texts(shown).shown() == settings.shown()
    assert texts_of(settings.groups)["group.max.session.timeout.ms"] == "60000"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("log.retention", "1", "brokers have no setting log.retention: did you mean 'log.retention.ms'?"),
        ("retention.ms", "1", "brokers have no setting retention.ms: did you mean 'log.retention.ms'?"),
        ("log.retention.ms", "a day", "setting 'log.retention.ms': expected a whole number of ms, at least -1"),
        ("num.partitions", "0", "setting 'num.partitions': expected a whole number of partitions, at least 1"),
        ("delete.topic.enable", "false", "brokers have no setting delete.topic.enable"),
    ],
)
def test_unknown_names_and_invalid_values_are_refused(name: str, text: str, message: str):
    with pytest.raises(ConfigError) as refused:
        EmbeddedBroker(settings={name: text})

    assert message in str(refused.value)


def test_settings_of_topics_must_not_contradict_each_other():
    with pytest.raises(ConfigError, match=r"settings of brokers for topics: .* it must not"):
        EmbeddedBroker(settings={"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "1"})


@pytest.mark.parametrize(
    ("settings", "error"),
    [({}, ErrorCode.INVALID_TRANSACTION_TIMEOUT), ({"transaction.max.timeout.ms": "2147483647"}, ErrorCode.NONE)],
)
def test_the_longest_timeout_of_a_transaction_is_a_setting(settings: dict[str, str], error: ErrorCode):
    answers = []
    with EmbeddedBroker(settings=settings) as broker:
        broker._machine.handle(InitProducerId("tx", 3_600_000), 0, answers.append)

    assert answers[0].error is error


def test_the_log_of_groups_has_its_own_settings():
    """A retention for topics must not let the broker forget committed offsets, nor a size its own records."""
    with EmbeddedBroker(settings={**SETTINGS, "message.max.bytes": "10", "log.retention.ms": "1"}) as broker:
        broker.create_topic("words", 1)
        with Consumer(broker, "group") as consumer:
            consumer.assign([TopicPartition("words", 0)])
            consumer.commit_sync({TopicPartition("words", 0): 0})
        config = described(broker, ResourceType.TOPIC, "__consumer_offsets")

    assert (config["max.message.bytes"][0], config["retention.ms"][0]) == ("1048588", "-1")
