"""A codec of the user's: what it gets, what it may get wrong, and that files need it again."""

import json

import pytest

from streams.broker import ArrayStorage, EmbeddedBroker
from streams.broker.logs.serialization import serialized
from streams.core.blocks.records import Block, ProducerStamp, TopicPartition
from streams.core.clock import VirtualClock
from streams.core.errors import BrokerError, ConfigError
from streams.protocol.batch import CorruptBatchError
from streams.protocol.error_codes import ErrorCode

WORDS = TopicPartition("words", 0)


class Lines:
    """Keys and values as JSON, for eyes that look into the files."""

    def encode(self, block):
        rows = zip(block.keys, block.values, block.timestamps, strict=True)
        return json.dumps([[k and k.decode(), v and v.decode(), t] for k, v, t in rows]).encode()

    def decode(self, data):
        rows = json.loads(data)
        columns = [[k and k.encode() for k, _, _ in rows], [v and v.encode() for _, v, _ in rows]]
        return Block(*columns, [t for _, _, t in rows])


def words(*values, key=b"k"):
    return Block([key] * len(values), list(values), list(range(len(values))))


def values(broker, partition=WORDS, offset=0):
    return [value for block in broker.read(partition, offset) for value in block.values]


def test_files_hold_the_codecs_bytes_and_the_broker_needs_it_again(tmp_path):
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("words", 1, serialization=Lines())
        broker.append(WORDS, words(b"to", b"be"))
        broker.append(WORDS, words(b"or"))
        broker.delete_records(WORDS, 1)

    [segment] = (tmp_path / "logs" / "words-0").glob("*.log")
    assert b'[["k", "to", 0], ["k", "be", 1]]' in segment.read_bytes()
    with pytest.raises(ConfigError, match=r"'words'.*serializations="):
        EmbeddedBroker(tmp_path)
    with EmbeddedBroker(tmp_path, serializations={"words": Lines()}) as broker:
        assert broker.start_offset(WORDS) == 1
        assert values(broker, offset=1) == [b"be", b"or"]
        assert broker.append(WORDS, words(b"not")) == 3


def test_a_log_without_records_goes_on_at_its_end_after_reopen(tmp_path):
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("words", 1, serialization=Lines())
        broker.append(WORDS, words(b"a", b"b"))
        broker.delete_records(WORDS, -1)

    with EmbeddedBroker(tmp_path, serializations={"words": Lines()}) as broker:
        assert (broker.start_offset(WORDS), broker.end_offset(WORDS)) == (2, 2)
        assert broker.append(WORDS, words(b"c")) == 2
        assert values(broker, offset=2) == [b"c"]


def test_a_topic_that_had_no_codec_gets_none_on_reopen(tmp_path):
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("words", 1)
        broker.append(WORDS, words(b"plain"))

    with EmbeddedBroker(tmp_path, serializations={"words": Lines()}) as broker:
        assert values(broker) == [b"plain"]


def test_compaction_encodes_what_is_left_under_its_offsets(tmp_path):
    config = {"cleanup.policy": "compact", "segment.bytes": "300", "min.cleanable.dirty.ratio": "0"}
    with EmbeddedBroker(tmp_path, clock=VirtualClock(0)) as broker:
        broker.create_topic("words", 1, config, serialization=Lines())
        for number in range(30):
            broker.append(WORDS, words(b"%d" % number, b"x", key=b"k%d" % (number % 3)))
        broker.maintain()
        kept = [(offset, value) for block in broker.read(WORDS, 0) for offset, _, value, _, _ in block.rows()]

    assert len(kept) < 30
    assert all(offset == 2 * int(value) for offset, value in kept if value != b"x")
    with EmbeddedBroker(tmp_path, serializations={"words": Lines()}) as broker:
        assert [(o, v) for block in broker.read(WORDS, 0) for o, _, v, _, _ in block.rows()] == kept
        assert broker.end_offset(WORDS) == 60


def test_a_codec_that_cannot_encode_refuses_the_append():
    with EmbeddedBroker() as broker:
        broker.create_topic("words", 1, serialization=Lines())
        with pytest.raises(BrokerError, match=r"words-0.*UnicodeDecodeError") as caught:
            broker.append(WORDS, words(b"\xff"))
        assert caught.value.code == ErrorCode.STORAGE_ERROR
        assert broker.end_offset(WORDS) == 0
        assert broker.append(WORDS, words(b"a")) == 0


class Forgetful(Lines):
    def decode(self, data):
        return super().decode(data).slice(1)


class Broken(Lines):
    def decode(self, data):
        raise KeyError("version")


@pytest.mark.parametrize(("codec", "reason"), [(Forgetful(), "2 were kept"), (Broken(), "version")])
def test_a_codec_that_cannot_decode_fails_the_read_with_the_place(codec, reason):
    with EmbeddedBroker() as broker:
        broker.create_topic("words", 1, serialization=codec)
        broker.append(WORDS, words(b"a", b"b"))
        with pytest.raises(CorruptBatchError, match=rf"words-0.*offset 0.*{reason}") as caught:
            broker.read(WORDS, 0)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_the_codec_sees_no_ends_of_transactions():
    storage = serialized(ArrayStorage(), Lines())
    marker = ProducerStamp(7, 0, is_transactional=True, is_control=True)
    storage.append(Block([b"\x00\x00\x00\x01"], [b"\x00\xff"], [5], producer=marker))

    [block] = storage.read(0, 10)

    assert (block.keys, block.producer) == ([b"\x00\x00\x00\x01"], marker)
