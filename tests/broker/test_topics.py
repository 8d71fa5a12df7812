"""Topics: made, grown, deleted, and found again."""

import json
import shutil

import google_crc32c
import pytest
from attrs import evolve

from streams.broker import ArrayStorage, EmbeddedBroker
from streams.broker.logs.config import parse_config
from streams.broker.repair import repair_data
from streams.clients import Admin, Consumer, Producer
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import BrokerError, ConfigError, DamagedLogError, StateLockedError, UnknownTopicError
from streams.protocol import batch
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import TopicSpec
from tests import waiting
from tests.broker.tcp.by_hand import Client


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
        ({"retention": "1"}, "topics have no setting retention: did you mean 'retention"),
        ({"retention.ms": "soon"}, "whole number"),
        ({"retention.ms": 1_000}, "'retention.ms': expected text, such as '-1', not int"),
        ({"retention.ms": None}, "expected text"),
        ({"retention.ms": "-5"}, "at least -1"),
        ({"cleanup.policy": "shred"}, "delete or compact, comma-separated"),
        ({"message.timestamp.type": "Now"}, "LogAppendTime"),
        ({"min.cleanable.dirty.ratio": "2"}, "at least 0, at most 1"),
        ({"min.cleanable.dirty.ratio": "0_1"}, "expected a number"),
        ({"min.cleanable.dirty.ratio": "nan"}, "expected a number"),
        ({"retention.ms": "1_000"}, "whole number"),
        ({"retention.ms": "\u0661\u0662"}, "whole number"),
        ({"retention.ms": str(2**63)}, "at most"),
        ({"retention.ms": "9" * 5_000}, "at most"),
        ({"segment.bytes": str(2**80)}, f"at most {2**31 - 1}"),
        ({"segment.ms": "0"}, "at least 1"),
        ({"flush.ms": "abc"}, "whole number"),
        ({"preallocate": "maybe"}, "true or false"),
        ({"message.timestamp.after.max.ms": "-1"}, "at least 0"),
        ({"message.timestamp.difference.max.ms": "soon"}, "whole number"),
        ({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, "min.compaction.lag.ms=6 exceeds"),
        ({"streams.record.ttl.ms": "1_0"}, "whole number"),
    ],
)
def test_wrong_settings_are_refused_with_the_reason(config, message):
    with EmbeddedBroker() as broker:
        with pytest.raises(BrokerError, match=message) as caught:
            broker.create_topic("words", 1, config)
        assert broker.topics() == {}
    assert caught.value.code == ErrorCode.INVALID_CONFIG


#: A value other than the default for each topic setting that has an effect.
OTHER_VALUES = {
    "cleanup.policy": "compact",
    "retention.ms": "1",
    "retention.bytes": "1",
    "max.message.bytes": "1",
    "message.timestamp.type": "LogAppendTime",
    "message.timestamp.before.max.ms": "1",
    "message.timestamp.after.max.ms": "1",
    "segment.bytes": "14",
    "segment.ms": "1",
    "delete.retention.ms": "1",
    "min.compaction.lag.ms": "1",
    "max.compaction.lag.ms": "1",
    "min.cleanable.dirty.ratio": "1",
    "compression.type": "gzip",
    "streams.partitioner": "round_robin",
    "streams.storage": "file",
    "streams.record.ttl.ms": "1",
}


def test_every_topic_setting_has_an_effect_or_is_among_those_that_a_single_broker_cannot_have():
    default = parse_config({})
    same = {name for name, value in OTHER_VALUES.items() if evolve(parse_config({name: value}), own={}) == default}

    assert same == set()
    assert set(OTHER_VALUES) == set(default.described())
    assert set(default.shown()) - set(OTHER_VALUES) == {
        *("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"),
        *("follower.replication.throttled.replicas", "leader.replication.throttled.replicas"),
        *("min.insync.replicas", "unclean.leader.election.enable"),
        *("local.retention.bytes", "local.retention.ms", "remote.log.copy.disable"),
        *("remote.log.delete.on.disable", "remote.storage.enable"),
        *("file.delete.delay.ms", "flush.messages", "flush.ms", "index.interval.bytes", "preallocate"),
        *("segment.index.bytes", "segment.jitter.ms"),
    }


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (TopicSpec("t", 1, {}, -5), ErrorCode.INVALID_REPLICATION_FACTOR),
        (TopicSpec("t", 1, {}, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (TopicSpec("t", -5), ErrorCode.INVALID_PARTITIONS),
        (TopicSpec("__consumer_offsets", 50), ErrorCode.INVALID_PARTITIONS),
        (TopicSpec("__consumer_offsets", 1, {"streams.storage": "array"}), ErrorCode.INVALID_CONFIG),
        (TopicSpec("__consumer_offsets", 1, {"max.message.bytes": "0"}), ErrorCode.INVALID_CONFIG),
        (TopicSpec("__transaction_state", 1, {"cleanup.policy": "delete"}), ErrorCode.INVALID_CONFIG),
    ],
)
def test_topics_that_no_client_may_make_are_refused(tmp_path, spec, code):
    with EmbeddedBroker(tmp_path) as broker, Admin(broker) as admin:
        with pytest.raises(BrokerError) as caught:
            admin.create_topics([spec])
        assert caught.value.code == code
        assert broker.topics(include_internal=True) == {}


def test_a_client_that_makes_a_topic_of_the_broker_s_own_makes_it_as_the_broker_does(tmp_path):
    with EmbeddedBroker(tmp_path) as broker, Admin(broker) as admin:
        admin.create_topics([TopicSpec("__consumer_offsets")])
        config = broker.describe_topic("__consumer_offsets").config
    assert (config["cleanup.policy"], config["streams.storage"]) == ("compact", "file")


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


def kept(tmp_path, *topics):
    """Make topics of two partitions with a record in each."""
    with EmbeddedBroker(tmp_path) as broker:
        for name in topics:
            broker.create_topic(name, 2, {"cleanup.policy": "compact"})
            for number in (0, 1):
                broker.append(TopicPartition(name, number), one(b"%d" % number))
        return {name: broker.describe_topic(name) for name in topics}


@pytest.mark.parametrize("lost", ["the file", "its entries", "one entry", "a partition's growth"])
def test_topics_are_adopted_by_their_folders(tmp_path, lost):
    """A backup without topics.json, or with an older one."""
    known = kept(tmp_path, "words", "others")
    path = tmp_path / "topics.json"
    document = json.loads(path.read_text())
    if lost == "the file":
        path.unlink()
    else:
        if lost == "a partition's growth":
            document["topics"]["words"]["partitions"] = 1
        else:
            document["topics"] = {} if lost == "its entries" else {"words": document["topics"]["words"]}
        path.write_text(json.dumps(document))

    for _ in range(2):
        with EmbeddedBroker(tmp_path) as broker:
            assert {name: broker.describe_topic(name) for name in broker.topics()} == known
            assert values(broker, TopicPartition("others", 1)) == [b"1"]
    assert json.loads(path.read_text())["topics"].keys() == known.keys()


@pytest.mark.parametrize("missing", ["a folder", "a description"])
def test_records_of_unknown_topics_are_refused_by_name_and_stay(tmp_path, missing):
    kept(tmp_path, "words")
    (tmp_path / "topics.json").unlink()
    if missing == "a folder":
        shutil.rmtree(tmp_path / "logs" / "words-0")
    else:
        (tmp_path / "logs" / "words-0" / "partition.metadata").unlink()
    before = {path: path.read_bytes() for path in (tmp_path / "logs").glob("*/*")}

    with pytest.raises(ConfigError, match=r"words-1.*nothing was deleted"):
        EmbeddedBroker(tmp_path)

    assert {path: path.read_bytes() for path in (tmp_path / "logs").glob("*/*")} == before


def test_what_a_killed_deletion_left_goes_when_the_broker_opens(tmp_path):
    kept(tmp_path, "words")
    path = tmp_path / "topics.json"
    document = json.loads(path.read_text())
    topic_id = document["topics"].pop("words")["id"]
    path.write_text(json.dumps({**document, "deleting": [topic_id]}))

    with EmbeddedBroker(tmp_path) as broker:
        assert broker.topics() == {}
    assert list((tmp_path / "logs").iterdir()) == []


def test_what_a_killed_creation_left_goes_when_the_broker_opens(tmp_path):
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("words", 3)
    (tmp_path / "topics.json").unlink()
    shutil.rmtree(tmp_path / "logs" / "words-2")

    with EmbeddedBroker(tmp_path) as broker:
        assert broker.topics() == {}


def test_a_storage_that_holds_records_is_not_given_to_a_new_topic(tmp_path):
    with EmbeddedBroker(tmp_path) as broker:
        shutil.copytree(_one_log(tmp_path / "elsewhere"), tmp_path / "logs" / "words-0")

        with pytest.raises(BrokerError, match="records up to offset 1 already"):
            broker.create_topic("words", 1)

    assert (tmp_path / "logs" / "words-0").is_dir()


def _one_log(directory):
    with EmbeddedBroker(directory) as broker:
        broker.create_topic("words")
        broker.append(TopicPartition("words", 0), one(b"x"))
    return directory / "logs" / "words-0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"partitions": "2"}, "partitions is '2'"),
        ({"partitions": 0}, "at least 1"),
        ({"config": ["x"]}, "config is"),
        ({"config": {"cleanup.policy": "burn"}}, "topics.json.*burn"),
        ({"storage": None}, "storage is None"),
        ({"id": "abc"}, "32 hexadecimal digits"),
    ],
)
def test_an_entry_of_a_wrong_kind_is_named(tmp_path, change, message):
    kept(tmp_path, "words")
    path = tmp_path / "topics.json"
    document = json.loads(path.read_text())
    document["topics"]["words"] |= change
    path.write_text(json.dumps(document))

    with pytest.raises(ConfigError, match=message):
        EmbeddedBroker(tmp_path)


def test_a_name_of_the_cluster_that_is_none_is_an_error(tmp_path):
    EmbeddedBroker(tmp_path).close()
    (tmp_path / "cluster.id").write_bytes(b"\xff\xfe")

    with pytest.raises(ConfigError, match=r"cluster\.id"):
        EmbeddedBroker(tmp_path)


def _damage(tmp_path, partition):
    path = tmp_path / "logs" / partition / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_a_broker_in_the_process_does_not_open_with_a_damaged_partition(tmp_path):
    kept(tmp_path, "words")
    _damage(tmp_path, "words-0")

    with pytest.raises(DamagedLogError, match="words-0"):
        EmbeddedBroker(tmp_path)
    assert list(repair_data(tmp_path, is_trial=False))
    with EmbeddedBroker(tmp_path) as broker:
        assert values(broker, TopicPartition("words", 0)) == []
        assert broker.end_offset(TopicPartition("words", 0)) == 1


def test_a_damaged_partition_is_offline_and_the_others_are_served(tmp_path):
    kept(tmp_path, "words")
    _damage(tmp_path, "words-0")

    with EmbeddedBroker(tmp_path, serves_damaged=True) as broker:
        assert list(broker.damages()) == [TopicPartition("words", 0)]
        for use in (
            lambda: broker.append(TopicPartition("words", 0), one(b"x")),
            lambda: broker.read(TopicPartition("words", 0), 0),
            lambda: broker.end_offset(TopicPartition("words", 0)),
            lambda: broker.delete_topic("words"),
        ):
            with pytest.raises(DamagedLogError) as caught:
                use()
            assert caught.value.code == ErrorCode.STORAGE_ERROR
        broker.append(TopicPartition("words", 1), one(b"more"))
        broker.maintain()
        with broker.serve("127.0.0.1:0") as server, Client(server.address) as client:
            assert client.produce("words", b"x")["error_code"] == ErrorCode.STORAGE_ERROR
            assert client.fetch("words")["error_code"] == ErrorCode.STORAGE_ERROR
            assert client.produce("words", b"x", partition=1)["error_code"] == ErrorCode.INVALID_RECORD, "no key"


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_a_broker_whose_own_records_are_damaged_does_not_open(tmp_path, topic):
    """Groups would begin anew, and transactional ids be forgotten."""
    kept(tmp_path, "words")
    with EmbeddedBroker(tmp_path) as broker, Producer(broker, transactional_id="t") as producer:
        producer.init_transactions()
        with Consumer(broker, "readers") as consumer:
            consumer.subscribe(["words"])
            waiting.until(consumer.assignment, lambda: consumer.poll(100))
            consumer.commit_sync({TopicPartition("words", 0): 1})
    _damage(tmp_path, f"{topic}-0")

    with pytest.raises(DamagedLogError, match=topic):
        EmbeddedBroker(tmp_path, serves_damaged=True)


def test_a_directory_serves_one_broker_at_a_time(tmp_path):
    with EmbeddedBroker(tmp_path), pytest.raises(StateLockedError, match=str(tmp_path)):
        EmbeddedBroker(tmp_path)

    EmbeddedBroker(tmp_path).close()


@pytest.mark.parametrize("text", ["{", '{"a":' * 100_000])
def test_a_broken_topics_file_is_named(tmp_path, text):
    EmbeddedBroker(tmp_path).close()
    (tmp_path / "topics.json").write_text(text)

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
        with pytest.raises(BrokerError, match=r"'compression\.type': expected .*zstd.*'brotli'") as caught:
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


def test_file_is_no_data_directory(tmp_path):
    (tmp_path / "data").touch()

    with pytest.raises(ConfigError, match="data cannot be used: it is a file; choose a folder"):
        EmbeddedBroker(tmp_path / "data")
    with pytest.raises(ConfigError, match=r"data/in/it cannot be used: Not a directory \(.*\); choose a folder"):
        EmbeddedBroker(tmp_path / "data" / "in" / "it")
    with pytest.raises(ConfigError, match="data_dir='': name a folder"):
        EmbeddedBroker("")


@pytest.mark.parametrize("partitions", [0, -1, 1.5, "3", True])
def test_partitions_that_are_no_number_are_refused(partitions):
    with EmbeddedBroker() as broker, pytest.raises(BrokerError, match="partitions: at least 1 is needed") as caught:
        broker.create_topic("words", partitions)
    assert caught.value.code == ErrorCode.INVALID_PARTITIONS
