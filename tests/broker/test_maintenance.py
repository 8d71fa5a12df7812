"""Compaction in steps: others read, write and delete between them, and find what the log means."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.broker import EmbeddedBroker
from streams.broker.logs.array import ArrayStorage
from streams.broker.logs.config import parse_config
from streams.broker.logs.file import FileStorage
from streams.broker.logs.linked import LinkedStorage
from streams.broker.logs.log import PartitionLog
from streams.broker.logs.steps import STEP_RECORDS
from streams.core.blocks.records import Block, TopicPartition
from streams.core.clock import VirtualClock

PARTITION = TopicPartition("table", 0)
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": "200000"}


def keyed(first: int, count: int, keys: int) -> Block:
    numbers = range(first, first + count)
    return Block([b"%d" % (n % keys) for n in numbers], [b"%d" % n for n in numbers], [1] * count)


def rows(log: PartitionLog) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    offset = log.start_offset
    while blocks := log.read(offset, 10_000):
        for block in blocks:
            yield from zip(block.offsets, block.keys, block.values, strict=True)
        offset = blocks[-1].offsets[-1] + 1


def made(kind: str, directory) -> PartitionLog:
    config = parse_config(COMPACTED)
    storage = {
        "array": ArrayStorage,
        "linked": LinkedStorage,
        "file": lambda: FileStorage(directory, config.segment_bytes),
    }[kind]()
    return PartitionLog(PARTITION, storage, config)


@pytest.mark.case
@pytest.mark.parametrize("kind", ["array", "linked", "file"])
@settings(max_examples=8, deadline=None)
@given(st.lists(st.sampled_from(["append", "delete", "read"]), max_size=8))
def test_between_two_steps_a_log_is_used_as_ever(tmp_path_factory, kind, acts):
    log = made(kind, tmp_path_factory.mktemp("log"))
    log.append([keyed(first, 5_000, 700) for first in range(0, 30_000, 5_000)], 0)
    table = {key: value for _, key, value in rows(log)}

    steps = log.compaction(0)
    for act in [*acts, *["read"] * 30]:
        if next(steps, None) is None:
            break
        end = log.high_watermark
        if act == "append":
            log.append([keyed(end, 3_000, 700)], 0)
            table |= {key: value for offset, key, value in rows(log) if offset >= end}
        elif act == "delete":
            log.delete_records(min(log.start_offset + 4_000, end - 10_000))
        found = list(rows(log))
        offsets = [offset for offset, _, _ in found]
        assert offsets == sorted(set(offsets))
        assert offsets[0] >= log.start_offset
        assert offsets[-1] == log.high_watermark - 1
        latest = {key: value for _, key, value in found}
        assert latest == {key: table[key] for key in latest}
        if log.high_watermark - log.start_offset > 20_000:
            assert latest == table
    log.storage.close()


def test_a_pass_over_a_large_log_lets_others_have_their_turn():
    clock = VirtualClock(1_000)
    with EmbeddedBroker(clock=clock, maintenance_interval_ms=1_000) as broker:
        broker.create_topic("table", config=COMPACTED)
        for first in range(0, 100_000, 5_000):
            broker.append(PARTITION, keyed(first, 5_000, 700))
        machine = broker._machine
        clock.advance(1_000)
        turns = 0

        machine.tick(clock.now_ms())
        while machine.next_deadline_ms() - clock.now_ms() <= 10:
            broker.append(PARTITION, keyed(100_000 + turns, 1, 700))
            turns += 1
            clock.advance(10)
            machine.tick(clock.now_ms())

        # Twice through: once for the keys, once for what stays.
        assert 100_000 // STEP_RECORDS < turns < 3 * 100_000 // STEP_RECORDS
        assert sum(len(block) for block in broker.read(PARTITION, 0)) <= 700 + turns


@pytest.mark.parametrize("event", ["delete", "alter", "maintain", "close"])
def test_a_pass_ends_with_what_it_was_for(tmp_path, event):
    clock = VirtualClock(1_000)
    with EmbeddedBroker(data_dir=tmp_path, clock=clock, maintenance_interval_ms=1_000) as broker:
        broker.create_topic("table", config=COMPACTED)
        for first in range(0, 60_000, 5_000):
            broker.append(PARTITION, keyed(first, 5_000, 700))
        machine = broker._machine
        clock.advance(1_000)
        while not list(tmp_path.rglob("*.cleaned")):
            machine.tick(clock.now_ms())
            clock.advance(10)
        if event == "delete":
            broker.delete_topic("table")
        elif event == "alter":
            machine.alter_topic("table", {"cleanup.policy": "delete", "retention.ms": "-1"}, clock.now_ms())
        elif event == "maintain":
            broker.maintain()
        if event != "close":
            for _ in range(100):
                clock.advance(10)
                machine.tick(clock.now_ms())
            assert not list(tmp_path.rglob("*.cleaned"))
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        assert not list(tmp_path.rglob("*.cleaned"))
        assert ("table" in broker.topics()) is (event != "delete")


def size_of(directory) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def test_what_is_being_written_is_sealed_and_compacted_after_segment_ms(tmp_path):
    """By the broker's time: nobody writes to it any more."""
    config = parse_config({"cleanup.policy": "compact", "segment.ms": "60000"})
    log = PartitionLog(PARTITION, FileStorage(tmp_path), config)
    log.append([keyed(first, 1_000, 10) for first in range(0, 20_000, 1_000)], 0)
    before = size_of(tmp_path)

    for now_ms, is_compacted in ((0, False), (59_999, False), (60_000, True)):
        log.seal(now_ms)
        assert log.compact(now_ms) == is_compacted

    assert size_of(tmp_path) < before / 50
    assert len(list(rows(log))) <= 11


def test_much_that_is_being_written_is_sealed_and_compacted_at_once(tmp_path):
    log = PartitionLog(PARTITION, FileStorage(tmp_path), parse_config({"cleanup.policy": "compact"}))
    for number in range(18):
        log.append([Block([b"k"], [bytes(1_000_000)], [number])], 0)

    log.seal(0)

    assert log.compact(0)
    assert size_of(tmp_path) < 2_000_000


def test_a_topic_that_is_not_compacted_is_not_sealed(tmp_path):
    log = PartitionLog(PARTITION, FileStorage(tmp_path), parse_config({"segment.ms": "1"}))
    log.append([keyed(0, 10, 10)], 0)

    for now_ms in (0, 100):
        log.seal(now_ms)

    assert len(log.storage.extents()) == 1
