"""Limits of an append, retention and compaction, over both storages."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.broker.logs.array import ArrayStorage
from streams.broker.logs.config import parse_config
from streams.broker.logs.file import FileStorage
from streams.broker.logs.linked import LinkedStorage
from streams.broker.logs.log import PartitionLog
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import BrokerError, OffsetOutOfRangeError, RecordTooLargeError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.wire import EncodedBlock

PARTITION = TopicPartition("words", 0)


@pytest.fixture(params=["array", "file"])
def make_log(request, tmp_path):
    storages = []

    def make(**config):
        names = {name.replace("_", "."): str(value) for name, value in config.items()}
        parsed = parse_config(names)
        storage = ArrayStorage() if request.param == "array" else FileStorage(tmp_path, parsed.segment_bytes)
        storages.append(storage)
        return PartitionLog(PARTITION, storage, parsed)

    yield make
    for storage in storages:
        storage.close()


def block(*values, keys=None, time_ms=0):
    return Block(keys or [None] * len(values), list(values), [time_ms] * len(values))


def contents(log):
    return [(row[0], row[1], row[2]) for part in log.storage.read(0, 1_000_000) for row in part.rows()]


# --- appending and reading ------------------------------------------------------------------


def test_an_oversized_record_refuses_all_blocks_of_the_append(make_log):
    log = make_log(max_message_bytes=1000)

    with pytest.raises(RecordTooLargeError, match=r"words-0.*max\.message\.bytes") as caught:
        log.append([block(b"small"), block(b"small", b"x" * 1000)], 0)

    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert log.high_watermark == 0


def test_the_size_limit_is_that_of_one_record_and_exact(make_log):
    """61 bytes of batch header, 1 or 2 of length, then the record."""
    log = make_log(max_message_bytes=200)
    value = b"x" * (200 - 61 - 2 - 7)

    log.append([block(*[value] * 100)], 0)
    with pytest.raises(RecordTooLargeError):
        log.append([block(value + b"x")], 0)


def test_headers_count_for_the_size(make_log):
    log = make_log(max_message_bytes=200)

    with pytest.raises(RecordTooLargeError):
        log.append([Block([None], [b"v"], [0], [(("name", b"x" * 200),)])], 0)


def test_columns_of_different_length_are_refused(make_log):
    log = make_log()

    with pytest.raises(BrokerError, match="equally long") as caught:
        log.append([Block([None], [b"a", b"b"], [0, 0])], 0)

    assert caught.value.code == ErrorCode.INVALID_RECORD
    assert log.high_watermark == 0


def test_a_compacted_topic_takes_no_record_without_key(make_log):
    log = make_log(cleanup_policy="compact")

    with pytest.raises(BrokerError, match="needs keys") as caught:
        log.append([block(b"a", b"b", keys=[b"k", None])], 0)

    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_log_append_time_replaces_the_timestamps(make_log):
    log = make_log(message_timestamp_type="LogAppendTime")
    given_block = block(b"a", b"b", time_ms=5)

    log.append([given_block], 1234)

    assert list(log.read(0, 10)[0].timestamps) == [1234, 1234]
    assert given_block.timestamps == [5, 5]


@pytest.mark.parametrize("offset", [-1, 1, 6, 100])
def test_a_read_outside_the_log_names_its_bounds(make_log, offset):
    log = make_log()
    log.append([block(b"a", b"b", b"c", b"d", b"e")], 0)
    log.delete_records(2)

    with pytest.raises(OffsetOutOfRangeError, match="2 to 4"):
        log.read(offset, 10)


def test_offsets_by_time_start_and_end(make_log):
    log = make_log()
    log.append([Block([None] * 3, [b"x"] * 3, [10, 20, 30])], 0)
    log.delete_records(1)

    assert log.offset_for(-2) == (-1, 1)
    assert log.offset_for(-1) == (-1, 3)
    assert log.offset_for(5) == (20, 1)
    assert log.offset_for(21) == (30, 2)
    assert log.offset_for(31) == (-1, -1)
    with pytest.raises(BrokerError):
        log.offset_for(-7)


def test_deleting_records_is_bounded_by_the_end(make_log):
    log = make_log()
    log.append([block(b"a", b"b")], 0)

    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records(3)
    assert log.delete_records(1) == 1
    assert log.delete_records(0) == 1
    assert log.delete_records(-1) == 2
    assert log.read(2, 10) == []


class _FullDisk(ArrayStorage):
    def append(self, block):
        raise MemoryError("disk full")


def test_a_storage_that_raises_is_a_named_error():
    log = PartitionLog(PARTITION, _FullDisk(), parse_config({}))

    with pytest.raises(BrokerError, match=r"words-0.*disk full") as caught:
        log.append([block(b"a")], 0)
    assert caught.value.code == ErrorCode.STORAGE_ERROR


# --- retention ------------------------------------------------------------------------------


def test_retention_by_time_drops_the_oldest_extents(make_log):
    log = make_log(retention_ms=1000, segment_bytes=20_000)
    for number in range(10):
        log.append([block(*[b"x" * 50] * 300, time_ms=number * 500)], 0)

    log.apply_retention(now_ms=5000)

    assert log.start_offset == 300 * 8
    assert log.high_watermark == 3000
    log.apply_retention(now_ms=1_000_000)
    assert log.start_offset == 3000


def test_log_without_a_cleanup_policy_keeps_everything(make_log):
    log = make_log(cleanup_policy="", retention_ms=1000, retention_bytes=1, segment_bytes=20_000)
    for number in range(10):
        log.append([block(*[b"x" * 50] * 300, time_ms=number * 500)], 0)

    log.apply_retention(now_ms=1_000_000)

    assert (log.start_offset, log.config.needs_maintenance) == (0, False)


def test_retention_by_time_stops_at_the_first_young_extent(make_log):
    log = make_log(retention_ms=1000, segment_bytes=20_000)
    for time_ms in (0, 9000, 0):
        log.append([block(*[b"x" * 50] * 300, time_ms=time_ms)], 0)

    log.apply_retention(now_ms=9500)

    assert log.start_offset == 300


def test_retention_by_size_keeps_at_least_the_given_bytes(make_log):
    log = make_log(retention_bytes=50_000, segment_bytes=20_000)
    for _ in range(10):
        log.append([block(*[b"x" * 50] * 300)], 0)

    log.apply_retention(now_ms=0)

    sizes = [extent.size_bytes for extent in log.storage.extents()]
    assert sum(sizes) >= 50_000 > sum(sizes) - sizes[0]
    assert log.start_offset > 0


def test_without_limits_nothing_ever_goes(make_log):
    log = make_log()
    log.append([block(b"a", time_ms=0)], 0)

    assert log.apply_retention(now_ms=10**15) == 0


def test_records_without_time_are_never_too_old(make_log):
    log = make_log(retention_ms=1)
    log.append([block(b"a", time_ms=-1)], 0)

    assert log.apply_retention(now_ms=10**15) == 0


# --- compaction -----------------------------------------------------------------------------


def keyed(*pairs, time_ms=0):
    return Block([key for key, _ in pairs], [value for _, value in pairs], [time_ms] * len(pairs))


def seal(log):
    """A file storage compacts closed segments only; a filler makes it close the one before."""
    log.append([keyed((b"filler", b"x" * 900))], 0)


def test_the_latest_record_per_key_stays_under_its_offset(make_log):
    log = make_log(cleanup_policy="compact", segment_bytes=800)
    log.append([keyed((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), (b"a", b"3"))], 0)
    seal(log)

    assert log.compact(0)

    assert contents(log)[:3] == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"a", b"3")]
    assert log.high_watermark == 6
    assert [part.offsets[0] for part in log.read(0, 1)] == [1]


def test_a_tombstone_stays_for_its_time_and_then_goes(make_log):
    log = make_log(cleanup_policy="compact", segment_bytes=800, delete_retention_ms=100)
    log.append([keyed((b"a", b"1"), (b"a", None), (b"b", b"1"))], 0)
    seal(log)

    log.compact(1000)
    assert contents(log)[:2] == [(1, b"a", None), (2, b"b", b"1")]
    assert not log.compact(1099)
    assert log.compact(1100)
    assert contents(log)[:1] == [(2, b"b", b"1")]
    assert not log.compact(9999)


def test_the_last_record_stays_so_that_readers_get_to_the_end():
    log = PartitionLog(
        PARTITION, ArrayStorage(), parse_config({"cleanup.policy": "compact", "delete.retention.ms": "0"})
    )
    log.append([keyed((b"a", b"1"), (b"a", None))], 0)

    log.compact(0)
    log.compact(1)

    assert contents(log) == [(1, b"a", None)]
    assert not log.compact(2)


@pytest.mark.parametrize("encoded_block", [False, True])
def test_timestamps_outside_the_limits_of_the_topic_refuse_the_block(make_log, encoded_block):
    log = make_log(message_timestamp_before_max_ms=100, message_timestamp_after_max_ms=50)

    def of(*times_ms):
        made = Block([None] * len(times_ms), [b"v"] * len(times_ms), list(times_ms))
        return EncodedBlock.of(made, 0) if encoded_block else made

    log.append([of(900, 1_050), of(-1)], 1_000)
    for times_ms, reason in (((899,), "101 ms before .* up to 100 "), ((1_000, 1_051), "51 ms after .* up to 50 ")):
        with pytest.raises(BrokerError, match=f"words-0: its timestamp {times_ms[-1]} is {reason}") as caught:
            log.append([of(1_000), of(*times_ms)], 1_000)
        assert caught.value.code == ErrorCode.INVALID_TIMESTAMP
    assert log.high_watermark == 3


def test_limits_of_timestamps_are_of_create_time_and_older_kafka_has_one_for_both(make_log):
    log = make_log(message_timestamp_difference_max_ms=10, message_timestamp_type="LogAppendTime")
    log.append([block(b"v")], 1_000)
    log.config = parse_config({"message.timestamp.difference.max.ms": "10"})

    for time_ms in (989, 1_011):
        with pytest.raises(BrokerError, match=r"is 11 ms .* up to 10 \(message\.timestamp\."):
            log.append([block(b"v", time_ms=time_ms)], 1_000)


@pytest.mark.parametrize("kind", ["array", "linked", "file"])
def test_records_are_compacted_at_the_latest_after_the_longest_lag(kind, tmp_path):
    """At 5 of 105 records the dirty ratio does not ask for it, and the segment on disk is still being written."""
    names = {"cleanup.policy": "compact", "max.compaction.lag.ms": "100"}
    storage = {"array": ArrayStorage, "linked": LinkedStorage, "file": lambda: FileStorage(tmp_path)}[kind]()
    log = PartitionLog(PARTITION, storage, parse_config(names | {"min.cleanable.dirty.ratio": "0"}))
    log.append([block(*[b"old"] * 100, keys=[b"%d" % number for number in range(100)], time_ms=1)], 1)
    log.seal(102)
    assert log.compact(102)
    log.config = parse_config(names)
    log.append([block(*[b"new"] * 5, keys=[b"%d" % number for number in range(5)], time_ms=1_000)], 1_000)

    log.seal(1_100)
    assert not log.compact(1_100)
    log.seal(1_101)
    assert log.compact(1_101)

    assert [offset for offset, *_ in contents(log)] == list(range(5, 105))
    storage.close()


def test_young_records_are_left_alone_by_the_compaction_lag():
    log = PartitionLog(
        PARTITION, ArrayStorage(), parse_config({"cleanup.policy": "compact", "min.compaction.lag.ms": "100"})
    )
    log.append([keyed(*[(b"a", b"%d" % number) for number in range(300)], time_ms=0)], 0)
    log.append([keyed(*[(b"a", b"%d" % number) for number in range(300)], time_ms=950)], 0)

    log.compact(1000)

    assert [row[0] for row in contents(log)] == [299, *range(300, 600)]


def test_a_pass_waits_until_enough_is_new():
    log = PartitionLog(PARTITION, ArrayStorage(), parse_config({"cleanup.policy": "compact"}))
    log.append([keyed(*[(b"%d" % number, b"x") for number in range(100)])], 0)
    assert log.compact(0)

    log.append([keyed(*[(b"%d" % number, b"y") for number in range(50)])], 0)
    assert not log.compact(0)
    log.append([keyed(*[(b"%d" % number, b"y") for number in range(50)])], 0)
    assert log.compact(0)
    assert len(contents(log)) == 100


def test_a_long_run_over_few_keys_does_not_grow(make_log):
    log = make_log(cleanup_policy="compact", segment_bytes=5000)
    for number in range(300):
        log.append([keyed(*[(b"%d" % (index % 10), b"%d" % number) for index in range(50)])], 0)
        log.compact(0)

    assert len(contents(log)) < 1000
    assert sum(extent.size_bytes for extent in log.storage.extents()) < 20_000
    latest = {key: value for _, key, value in contents(log)}
    assert latest == {b"%d" % key: b"299" for key in range(10)}


_appends = st.lists(
    st.tuples(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.sampled_from([b"1", b"2", None])),
                       min_size=1, max_size=40), st.booleans()),
    max_size=15,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(_appends, st.sampled_from(["array", "file"]))
def test_compaction_never_changes_the_table_that_a_log_means(tmp_path_factory, appends, kind):
    """Replaying the log gives the same value per key, before and after, whenever passes are made."""
    config = parse_config(
        {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0",
            "delete.retention.ms": "2",
            "segment.bytes": "300",
        }
    )
    directory = tmp_path_factory.mktemp("log")
    storage = ArrayStorage() if kind == "array" else FileStorage(directory, config.segment_bytes)
    log = PartitionLog(PARTITION, storage, config)
    table, last_offset = {}, -1
    for now_ms, (pairs, is_pass) in enumerate(appends):
        log.append([keyed(*pairs)], now_ms)
        table.update(pairs)
        last_offset += len(pairs)
        if is_pass:
            log.compact(now_ms)
        offsets = [row[0] for row in contents(log)]
        replayed = {key: value for _, key, value in contents(log)}
        assert {k: v for k, v in replayed.items() if v is not None} == {k: v for k, v in table.items() if v is not None}
        assert offsets == sorted(set(offsets))
        assert offsets[-1] == last_offset
    storage.close()
