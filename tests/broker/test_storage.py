"""Storages: array and file keep the same promise."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.broker.array import ArrayStorage
from streams.broker.file import FileStorage
from streams.core.records import Block


def block(*values, time_ms=0, keys=None):
    keys = keys or [None] * len(values)
    return Block(keys, list(values), [time_ms] * len(values))


def rows(blocks):
    return [row for part in blocks for row in part.rows()]


def values(blocks):
    return [value for part in blocks for value in part.values]


@pytest.fixture(params=["array", "file"])
def storage(request, tmp_path):
    storage = ArrayStorage() if request.param == "array" else FileStorage(tmp_path, 2000, cache_bytes=0)
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
    assert (storage.start_offset, storage.end_offset) == (600, 600)
    assert storage.append(block(b"c")) == 600
    assert values(storage.read(600, 5)) == [b"c"]


def test_compaction_keeps_offsets_and_reads_jump_over_holes(storage):
    for number in range(100):
        storage.append(block(b"%d" % number * 30, keys=[b"k"]))
    sealed = storage.sealed_offset

    left = storage.compact(sealed, lambda part: part.slice(0, 1) if part.offsets[0] % 2 == 0 else None)

    found = [row[0] for row in rows(storage.read(0, 1000))]
    assert left == sum(1 for offset in found if offset < sealed)
    assert found == sorted(set(found))
    assert found[-1] == (0 if sealed == 100 else 99)
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
def test_array_and_file_answer_alike(tmp_path_factory, operations, cache_bytes):
    """A list of rows is the model of both."""
    directory = tmp_path_factory.mktemp("log")
    array, file = ArrayStorage(), FileStorage(directory, 3000, cache_bytes=cache_bytes)
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
            assert array.append(appended) == file.append(appended) == base
            model += [(base + index, *row[1:]) for index, row in enumerate(_numbered(appended))]
        elif verb == "read":
            expected = [row for row in model if row[0] >= max(first, start)][:second]
            assert rows(array.read(first, second)) == rows(file.read(first, second)) == expected
        elif verb == "truncate":
            array.truncate_before(first)
            file.truncate_before(first)
            start = max(start, min(first, written))
        elif verb == "time":
            expected_time = next(((row[0], row[3]) for row in model if row[3] >= first and row[0] >= start), None)
            assert array.offset_for_timestamp(first) == file.offset_for_timestamp(first) == expected_time
        else:
            file.close()
            file = FileStorage(directory, 3000, cache_bytes=cache_bytes)
        assert (array.start_offset, array.end_offset) == (file.start_offset, file.end_offset) == (start, written)
    file.close()


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

    began = time.perf_counter()
    for _ in range(1_000_000):
        storage.append(one)
    seconds = time.perf_counter() - began

    blocks = storage.read(0, 1_000_000)
    assert sum(map(len, blocks)) == 1_000_000
    assert len(blocks) < 300
    assert seconds < 20, "2 s on a quiet machine"
