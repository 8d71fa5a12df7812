"""The newest batches of all partitions share one budget, and what is counted is what they take."""

import gc
import tracemalloc

import pytest

from streams.broker.logs.cache import CacheBudget, RecentBatches
from streams.broker.logs.file import FileStorage
from streams.core.blocks.records import Block
from streams.protocol import batch
from streams.protocol.wire import produced


def small_batch(value=b"x"):
    """A batch of one record, as a producer sends it."""
    return produced(batch.encode(Block([None], [value], [1]), 0))


def filled(budget, folder, partitions, batches):
    storages = [FileStorage(folder / str(number), budget=budget) for number in range(partitions)]
    for _ in range(batches):
        for storage in storages:
            storage.append(small_batch())
    return storages


def test_all_partitions_share_one_budget(tmp_path):
    budget = CacheBudget(1 << 20)

    filled(budget, tmp_path, partitions=20, batches=400)

    assert 0 < budget.used_bytes <= 1 << 20


def test_small_batches_take_what_is_counted(tmp_path):
    """69 bytes each, of which the objects around them are ten times as many."""
    budget = CacheBudget(2 << 20)
    filled(budget, tmp_path / "warm", partitions=1, batches=10)
    gc.collect()
    tracemalloc.start()

    storages = filled(budget, tmp_path, partitions=4, batches=2_000)

    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(storages) == 4
    assert taken < 1.25 * budget.used_bytes + (256 << 10)


def test_what_was_given_up_is_read_from_the_file(tmp_path):
    storages = filled(CacheBudget(100_000), tmp_path, partitions=3, batches=300)

    for storage in storages:
        values = [value for block in storage.read(0, 10_000) for value in block.values]
        assert values == [b"x"] * 300
        run = storage.read_encoded(0, 1 << 20, 300, is_first=True)
        assert run.next_offset == 300


def test_the_partition_written_to_longest_ago_gives_up_first(tmp_path):
    budget = CacheBudget(10_000)
    old, new = RecentBatches(budget), RecentBatches(budget)

    for _ in range(5):
        old.append(small_batch(), 70)
    for _ in range(12):
        new.append(small_batch(), 70)

    assert (old.used_bytes, old.start_offset) == (0, 5)
    assert new.start_offset == 0


@pytest.mark.parametrize("end", ["close", "delete"])
def test_a_log_that_ends_gives_its_part_back(tmp_path, end):
    budget = CacheBudget()
    (storage,) = filled(budget, tmp_path, partitions=1, batches=10)

    getattr(storage, end)()

    assert budget.used_bytes == 0


def test_a_batch_larger_than_the_budget_is_not_kept(tmp_path):
    budget = CacheBudget(1_000)
    storage = FileStorage(tmp_path, budget=budget)

    storage.append(small_batch(bytes(5_000)))

    assert budget.used_bytes == 0
    assert storage.read(0, 10)[0].values == [bytes(5_000)]


def test_who_looks_inside_a_batch_leaves_it_as_it_was(tmp_path):
    """Decoded columns would take several times what is counted."""
    storage = FileStorage(tmp_path)
    storage.append(small_batch())

    first, second = storage.read(0, 10), storage.read(0, 10)
    assert first[0].values == [b"x"]

    assert first[0] is not second[0]
    assert first[0].data is second[0].data
