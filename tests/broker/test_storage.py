"""Storages: array, linked list, files, and a codec over each keep the same promise."""

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.broker.logs.array import ArrayStorage
from streams.broker.logs.file import FileStorage
from streams.broker.logs.linked import LinkedStorage
from streams.broker.logs.serialization import serialized
from streams.broker.logs.storage import picked
from streams.core.blocks.records import Block, ProducerStamp


def block(*values, time_ms=0, keys=None):
    keys = keys or [None] * len(values)
    return Block(keys, list(values), [time_ms] * len(values))


def rows(blocks):
    return [row for part in blocks for row in part.rows()]


def values(blocks):
    return [value for part in blocks for value in part.values]


class Rows:
    """A codec as a user might write it."""

    def encode(self, block):
        return repr((block.keys, block.values, block.timestamps, block.headers)).encode()

    def decode(self, data):
        return Block(*ast.literal_eval(data.decode()))


def make(kind, directory, segment_bytes=2000, cache_bytes=0):
    kind, _, over = kind.partition(" ")
    if over:
        return serialized(make(over, directory, segment_bytes, cache_bytes), Rows())
    if kind == "file":
        return FileStorage(directory, segment_bytes, cache_bytes=cache_bytes)
    return ArrayStorage() if kind == "array" else LinkedStorage()


KINDS = ["array", "linked", "file", "codec array", "codec linked", "codec file"]


@pytest.fixture(params=KINDS)
def storage(request, tmp_path):
    storage = make(request.param, tmp_path)
    yield storage
    storage.close()


def test_records_are_numbered_from_zero(storage):
    assert storage.append(block(b"a", b"b")) == 0
    assert storage.append(block(b"c")) == 2

    assert (storage.start_offset, storage.end_offset) == (0, 3)
    assert [row[0] for row in rows(storage.read(0, 10))] == [0, 1, 2]


def test_reading_begins_in_the_middle_of_a_block(storage):
    storage.append(block(*[b"%d" % number for number in range(1000)]))

    assert values(storage.read(997, 10)) == [b"997", b"998", b"999"]
    assert values(storage.read(500, 3)) == [b"500", b"501", b"502"]
    assert storage.read(1000, 10) == []


def test_time_index_finds_the_first_record_at_or_after_a_time(storage):
    for number in range(600):
        storage.append(Block([None] * 2, [b"x"] * 2, [number * 10, number * 10 - 500]))

    assert storage.offset_for_timestamp(0) == (0, 0)
    assert storage.offset_for_timestamp(11) == (4, 20)
    assert storage.offset_for_timestamp(5990) == (1198, 5990)
    assert storage.offset_for_timestamp(5991) is None


def test_time_index_ignores_what_lies_before_the_start(storage):
    storage.append(Block([None] * 3, [b"x"] * 3, [50, 10, 60]))
    storage.truncate_before(1)

    assert storage.offset_for_timestamp(20) == (2, 60)


def test_truncation_raises_the_start_and_keeps_the_numbers(storage):
    for _ in range(300):
        storage.append(block(b"a" * 20, b"b"))
    storage.truncate_before(301)

    assert (storage.start_offset, storage.end_offset) == (301, 600)
    assert [row[0] for row in rows(storage.read(0, 2))] == [301, 302]
    storage.truncate_before(10_000)
    assert (storage.start_offset, storage.end_offset) == (10_000, 10_000)
    assert storage.append(block(b"c")) == 10_000
    assert values(storage.read(600, 5)) == [b"c"]


def test_compaction_keeps_offsets_and_reads_jump_over_holes(storage):
    for number in range(100):
        storage.append(block(b"%d" % number * 30, keys=[b"k"]))
    sealed = storage.sealed_offset

    def keep(part):
        even = [index for index, offset in enumerate(part.offsets) if offset % 2 == 0]
        return picked(part, even) if even else None

    assert storage.compact(sealed, keep) == (sealed + 1) // 2

    found = [(row[0], row[2]) for row in rows(storage.read(0, 1000))]
    assert found == [(n, b"%d" % n * 30) for n in range(100) if n >= sealed or n % 2 == 0]
    assert [row[0] for row in rows(storage.read(3, 2))] == [item[0] for item in found if item[0] >= 3][:2]
    assert storage.end_offset == 100
    assert storage.append(block(b"next")) == 100


def test_a_reader_does_not_see_later_appends_in_a_block_it_holds(storage):
    storage.append(block(b"a"))
    held = storage.read(0, 10)
    storage.append(block(b"b"))

    assert values(held) == [b"a"]


_operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 600), st.integers(-5, 100)),
        st.tuples(st.just("read"), st.integers(0, 3000), st.integers(0, 700)),
        st.tuples(st.just("truncate"), st.integers(0, 3000), st.none()),
        st.tuples(st.just("time"), st.integers(0, 100), st.none()),
        st.tuples(st.just("reopen"), st.none(), st.none()),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(_operations, st.sampled_from([0, 3000, 1 << 20]))
def test_all_storages_answer_alike(tmp_path_factory, operations, cache_bytes):
    """A list of rows is the model of all; those over files are opened again in between."""
    storages = {kind: make(kind, tmp_path_factory.mktemp("log"), 3000, cache_bytes) for kind in KINDS}
    model, start, written = [], 0, 0
    for verb, first, second in operations:
        if verb == "append":
            base = written
            written += first
            with_headers = second % 2 == 0
            appended = Block(
                [b"%d" % (number % 7) if number % 3 else None for number in range(base, written)],
                [b"v%d" % number if number % 5 else None for number in range(base, written)],
                [second + number % 10 for number in range(base, written)],
                [(("h", b"%d" % number),) if number % 4 == 0 else () for number in range(base, written)]
                if with_headers
                else None,
            )
            assert {storage.append(appended) for storage in storages.values()} == {base}
            model += [(base + index, *row[1:]) for index, row in enumerate(_numbered(appended))]
        elif verb == "read":
            expected = [row for row in model if row[0] >= max(first, start)][:second]
            for storage in storages.values():
                assert rows(storage.read(first, second)) == expected
        elif verb == "truncate":
            for storage in storages.values():
                storage.truncate_before(first)
            start = max(start, first)
            written = max(written, first)
        elif verb == "time":
            expected_time = next(((row[0], row[3]) for row in model if row[3] >= first and row[0] >= start), None)
            for storage in storages.values():
                assert storage.offset_for_timestamp(first) == expected_time
        else:
            for kind in ("file", "codec file"):
                inner = getattr(storages[kind], "inner", storages[kind])
                storages[kind].close()
                storages[kind] = make(kind, inner.directory, 3000, cache_bytes)
        for kind, storage in storages.items():
            assert (kind, storage.start_offset, storage.end_offset) == (kind, start, written)
            extents = storage.extents()
            assert all(extent.base_offset < extent.end_offset for extent in extents)
            assert not extents or extents[-1].end_offset == written
    for storage in storages.values():
        storage.close()


def test_records_of_different_producers_and_the_ends_of_transactions_stay_apart(storage):
    stamps = [
        None,
        ProducerStamp(1, 0, 0),
        ProducerStamp(1, 0, 1),
        ProducerStamp(1, 0, 5),
        ProducerStamp(2, 0, 0, is_transactional=True),
        ProducerStamp(2, 0, -1, is_transactional=True, is_control=True),
        ProducerStamp(2, 0, -1, is_transactional=True, is_control=True),
        None,
        None,
    ]
    for stamp in stamps:
        storage.append(Block([b"k"], [b"v"], [0], producer=stamp))

    blocks = storage.read(0, 100)

    assert [stamp._replace(sequence=-1) if stamp else None for stamp in stamps] == [
        block.producer._replace(sequence=-1) if block.producer else None for block in blocks for _ in block.values
    ]
    assert {block.offsets[0]: block.producer.sequence for block in blocks if block.producer}[3] == 5
    assert all(len(block) == 1 for block in blocks if block.producer and block.producer.is_control)


def _numbered(appended):
    return Block(appended.keys, appended.values, appended.timestamps, appended.headers, range(len(appended))).rows()


def test_large_blocks_in_memory_are_kept_without_a_copy():
    storage = ArrayStorage()
    large = block(*[b"x"] * 1000)

    storage.append(large)

    assert storage.read(0, 1000)[0].values is large.values


def test_a_million_single_appends_become_large_blocks():
    storage = ArrayStorage()
    one = block(b"x")

    for _ in range(1_000_000):
        storage.append(one)

    blocks = storage.read(0, 1_000_000)
    assert sum(map(len, blocks)) == 1_000_000
    assert len(blocks) < 300
