"""Topics: made, grown, deleted, and found again."""

import json

import google_crc32c
import pytest

from streams.broker import ArrayStorage, EmbeddedBroker
from streams.clients import Consumer, Producer
from streams.core.errors import BrokerError, ConfigError, StateLockedError, UnknownTopicError
from streams.core.records import Block, TopicPartition
from streams.protocol import batch
from streams.protocol.messages import ErrorCode


def one(value):
    return Block([b"k"], [value], [0])


def values(broker, partition):
    return [value for block in broker.read(partition, broker.start_offset(partition)) for value in block.values]


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 250, "ä", "a\n"])
def test_illegal_names_are_refused(name):
    with EmbeddedBroker() as broker, pytest.raises(BrokerError) as caught:
        broker.create_topic(name)
    assert caught.value.code == ErrorCode.INVALID_TOPIC


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"retention": "1"}, "retention.*unknown"),
        ({"retention.ms": "soon"}, "whole number"),
        ({"retention.ms": "-5"}, "at least -1"),
        ({"cleanup.policy": "shred"}, "compact,delete"),
        ({"message.timestamp.type": "Now"}, "LogAppendTime"),
        ({"min.cleanable.dirty.ratio": "2"}, "between 0 and 1"),
    ],
)
def test_wrong_settings_are_refused_with_the_reason(config, message):
    with EmbeddedBroker() as broker:
        with pytest.raises(BrokerError, match=message) as caught:
            broker.create_topic("words", 1, config)
        assert broker.topics() == {}
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_a_name_is_taken_once():
    with EmbeddedBroker() as broker:
        broker.create_topic("words", 1)
        with pytest.raises(BrokerError) as caught:
            broker.create_topic("words", 1)
    assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_an_unknown_partition_says_which_there_are():
    with EmbeddedBroker(default_partitions=3) as broker:
        broker.create_topic("words")
        with pytest.raises(UnknownTopicError, match="partitions 0 to 2"):
            broker.append(TopicPartition("words", 3), one(b"x"))
        with pytest.raises(UnknownTopicError, match="does not exist"):
            broker.end_offset(TopicPartition("other", 0))


def test_topics_and_records_are_found_again(tmp_path):
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("words", 2, {"cleanup.policy": "compact"})
        broker.create_topic("volatile", 1, storage="array")
        broker.append(TopicPartition("words", 1), one(b"kept"))
        broker.append(TopicPartition("volatile", 0), one(b"gone"))

    with EmbeddedBroker(tmp_path) as broker:
        assert broker.topics() == {"words": 2, "volatile": 1}
        assert values(broker, TopicPartition("words", 1)) == [b"kept"]
        assert broker.end_offset(TopicPartition("volatile", 0)) == 0
        with pytest.raises(BrokerError, match="needs keys"):
            broker.append(TopicPartition("words", 0), Block([None], [b"x"], [0]))


def test_a_deleted_topic_leaves_nothing_behind(tmp_path):
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("words", 1)
        broker.append(TopicPartition("words", 0), one(b"old"))
        broker.delete_topic("words")
        broker.create_topic("words", 1)
        assert broker.end_offset(TopicPartition("words", 0)) == 0
        broker.delete_topic("words")

    with EmbeddedBroker(tmp_path) as broker:
        assert broker.topics() == {}
    assert list((tmp_path / "logs").iterdir()) == []


def test_what_an_interrupted_deletion_left_is_cleared_away(tmp_path):
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("words", 1)
        broker.append(TopicPartition("words", 0), one(b"old"))
    (tmp_path / "topics.json").write_text(json.dumps({"version": 1, "topics": {}}))

    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("words", 1)
        assert broker.end_offset(TopicPartition("words", 0)) == 0


def test_a_directory_serves_one_broker_at_a_time(tmp_path):
    with EmbeddedBroker(tmp_path), pytest.raises(StateLockedError, match=str(tmp_path)):
        EmbeddedBroker(tmp_path)

    EmbeddedBroker(tmp_path).close()


def test_a_broken_topics_file_is_named(tmp_path):
    EmbeddedBroker(tmp_path).close()
    (tmp_path / "topics.json").write_text("{")

    with pytest.raises(ConfigError, match=r"topics\.json"):
        EmbeddedBroker(tmp_path)
    (tmp_path / "topics.json").unlink()
    EmbeddedBroker(tmp_path).close()


def test_a_storage_of_the_users_own(tmp_path):
    made = []

    def factory(context):
        made.append((context.partition, dict(context.config)))
        return ArrayStorage()

    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("own", 2, {"retention.ms": "5"}, storage=factory)
        broker.append(TopicPartition("own", 0), one(b"x"))
    assert made == [(TopicPartition("own", number), {"retention.ms": "5"}) for number in (0, 1)]

    with pytest.raises(ConfigError, match="storages="):
        EmbeddedBroker(tmp_path)
    with EmbeddedBroker(tmp_path, storages={"own": factory}) as broker:
        assert broker.topics() == {"own": 2}


def test_files_need_a_directory():
    with EmbeddedBroker(storage="file") as broker, pytest.raises(ConfigError, match="data_dir"):
        broker.create_topic("words", 1)


def test_internal_topics_are_shown_only_when_asked_for():
    with EmbeddedBroker() as broker:
        with pytest.raises(BrokerError):
            broker.delete_topic("__consumer_offsets")
        assert broker.topics(include_internal=True) == {}


# --- compression ------------------------------------------------------------------------------


def test_a_topic_says_how_its_files_are_compressed_and_leaves_it_to_producers_otherwise(tmp_path):
    with EmbeddedBroker(tmp_path) as broker:
        for name, compression in {"leave": "producer", "pack": "zstd", "plain": "none"}.items():
            broker.create_topic(name, 1, {"compression.type": compression})
        with Producer(broker, compression_type="lz4") as producer:
            for name in ("leave", "pack", "plain"):
                producer.send(name, b"the same" * 100)

    found = {}
    for name in ("leave", "pack", "plain"):
        [segment] = (tmp_path / "logs" / f"{name}-0").glob("*.log")
        [(_, header)] = batch.headers(segment.read_bytes())
        found[name] = header.compression
    assert found == {"leave": "lz4", "pack": "zstd", "plain": "none"}


def test_an_unknown_compression_is_refused():
    with EmbeddedBroker() as broker:
        with pytest.raises(BrokerError, match=r"compression\.type='brotli'.*zstd") as caught:
            broker.create_topic("words", 1, {"compression.type": "brotli"})
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_damaged_compressed_bytes_are_an_error_with_topic_partition_and_offset(tmp_path):
    """The checksum fits, the codec cannot read what it covers."""
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("words", 1, {"compression.type": "zstd"})
        broker.append(TopicPartition("words", 0), one(b"first"))
        broker.append(TopicPartition("words", 0), one(b"second"))
    [segment] = (tmp_path / "logs" / "words-0").glob("*.log")
    data = bytearray(segment.read_bytes())
    [_, (second, _)] = batch.headers(bytes(data))
    data[second + batch.HEADER_SIZE :] = bytes(len(data) - second - batch.HEADER_SIZE)
    data[second + 17 : second + 21] = google_crc32c.value(bytes(data[second + 21 :])).to_bytes(4, "big")
    segment.write_bytes(data)

    with EmbeddedBroker(tmp_path) as broker:
        with pytest.raises(BrokerError, match=r"words-0 .*offset 1.*offset 1.*zstd") as caught:
            broker.read(TopicPartition("words", 0), 1)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
        with Consumer(broker) as consumer:
            consumer.assign([TopicPartition("words", 0)])
            consumer.seek(TopicPartition("words", 0), 1)
            with pytest.raises(BrokerError, match=r"fetch of words-0 at 1: CORRUPT_MESSAGE"):
                while True:
                    consumer.poll(100)


def test_topics_of_one_request_are_written_once_or_none_is_there(tmp_path):
    """Ten thousand would write the file ten thousand times."""
    with EmbeddedBroker(tmp_path) as broker:
        topics = broker._machine.topics
        with topics.creating():
            for number in range(3):
                topics.create(f"t{number}", 1)
            assert not (tmp_path / "topics.json").exists()
        assert "t2" in (tmp_path / "topics.json").read_text()

        (tmp_path / "topics.json.tmp").mkdir()
        with pytest.raises(OSError), topics.creating():
            topics.create("lost", 1)
        assert broker.topics() == {"t0": 1, "t1": 1, "t2": 1}
        (tmp_path / "topics.json.tmp").rmdir()
