"""Restoring takes a bounded memory: what is restored so far is written, with the position that it reaches to.

A store is fed from a changelog by hand, turn by turn, so that it can be left after any of them.
"""

from pathlib import Path
from typing import Any

import pytest

from streams import Consumer, EmbeddedBroker, Producer, TopicPartition
from streams.core.blocks.records import Block, TaskId
from streams.core.clock import VirtualClock
from streams.core.metrics import Metrics
from streams.core.serdes.serdes import LONG, STRING
from streams.runtime.stores.restore import Restorer, changelog_position
from streams.state import Store, StoreSpec, kinds, open_store
from tests.waiting import WATCHDOG_MS

CHANGELOG = TopicPartition("changelog", 0)
TASK = TaskId(0, 0)
KV = StoreSpec("sums", kinds.KEY_VALUE, STRING, LONG)
VERSIONED = StoreSpec("sums", kinds.VERSIONED, STRING, LONG, history_ms=1_000_000)
WINDOWS = StoreSpec("sums", kinds.WINDOW, STRING, LONG, retention_ms=1_000_000, window_size_ms=10)
TURN = 10


@pytest.fixture
def broker():
    with EmbeddedBroker() as made:
        made.create_topic(CHANGELOG.topic, 1)
        yield made


def begin(restorer: Restorer, stores: dict[str, Store], changelogs: dict[str, TopicPartition], **limits: int) -> None:
    starts, ends = restorer.starts(changelogs.values()), restorer.ends(changelogs.values())
    restorer.begin(TASK, stores, changelogs, limits, {}, {log: range(starts[log], ends[log]) for log in ends})


class Restoring:
    """One store on its way to the end of the changelog, with at most so many bytes before it is written."""

    def __init__(self, broker: EmbeddedBroker, path: Path, spec: StoreSpec = KV, *, most: int = 0, **options: Any):
        self.store = open_store(spec, path, default_engine="rocksdb")
        consumer = Consumer(broker, client_id="restore", auto_offset_reset="earliest", **options)
        self.restorer = Restorer(consumer, TURN, max_uncommitted_bytes=most)
        begin(self.restorer, {"sums": self.store}, {"sums": CHANGELOG})

    def turn(self) -> None:
        while self.restorer.is_restoring(TASK) and not self.restorer.poll():
            pass

    def to_the_end(self) -> dict[str, int]:
        while self.restorer.is_restoring(TASK):
            self.turn()
        return dict(self.store.all())

    def crash(self) -> None:
        """Leave the store; what was not written is lost."""
        self.store.close()
        self.restorer.close()


def block(entries: dict[str, int]) -> Block:
    keys = [STRING.serialize(key) for key in entries]
    return Block(keys, [LONG.serialize(value) for value in entries.values()], [0] * len(keys), None, range(len(keys)))


def write(broker: EmbeddedBroker, *batches: dict[str, int]) -> None:
    with Producer(broker, client_id="plain") as producer:
        for entries in batches:
            producer.send_block(CHANGELOG, block(entries))


def numbered(first: int, count: int, value: int) -> dict[str, int]:
    return {f"k{number:03}": value for number in range(first, first + count)}


@pytest.mark.parametrize(("limit", "left"), [(0, 0), (7, 7), (20, 20), (50, 20)])
def test_a_source_topic_is_restored_up_to_its_commit_and_not_beyond_its_end(broker, limit, left):
    """A commit beyond the end is of a topic that was created again: nobody would ever reach it."""
    write(broker, numbered(0, 20, 1))
    restorer = Restorer(Consumer(broker, client_id="restore", auto_offset_reset="earliest"), TURN)
    begin(restorer, {"sums": open_store(KV, default_engine="in_memory")}, {"sums": CHANGELOG}, sums=limit)

    assert sum(offsets for _, offsets, _ in restorer.progress()) == left
    restorer.close()


def test_all_live_keys_of_a_changelog_are_read_however_few_come_at_once(broker):
    write(broker, numbered(0, 3, 1))
    restorer = Restorer(Consumer(broker, client_id="restore", auto_offset_reset="earliest"), 1)

    assert sorted(restorer.live_keys(CHANGELOG)) == [STRING.serialize(key) for key in numbered(0, 3, 1)]
    restorer.close()


def test_a_restore_of_more_than_a_minute_is_told_each_minute_and_its_end(broker, caplog):
    write(broker, *[numbered(first, TURN, 1) for first in range(0, 30, TURN)])
    clock = VirtualClock()
    consumer = Consumer(broker, client_id="restore", auto_offset_reset="earliest")
    restorer = Restorer(consumer, TURN, metrics=Metrics(clock))
    begin(restorer, {"sums": open_store(KV, default_engine="in_memory")}, {"sums": CHANGELOG})
    while restorer.is_restoring(TASK):
        clock.advance(50_000)
        while restorer.is_restoring(TASK) and not restorer.poll():
            pass
    restorer.close()

    assert caplog.messages == [
        f"task 0_0: restoring store 'sums' from {CHANGELOG} for 100 s: 10 records left, about 50 s",
        "task 0_0: restored store 'sums', 30 records, after 150 s",
    ]


def test_what_is_restored_is_written_when_it_takes_too_much_memory(broker, tmp_path):
    write(broker, *[numbered(first, TURN, 1) for first in range(0, 100, TURN)])
    restoring = Restoring(broker, tmp_path)
    most = 0
    while restoring.restorer.is_restoring(TASK):
        restoring.turn()
        most = max(most, restoring.store.approximate_uncommitted_bytes)
        assert changelog_position(restoring.store) == len(list(restoring.store.all()))

    assert most == 0
    assert changelog_position(restoring.store) == 100
    restoring.crash()


def test_below_the_limit_nothing_is_written_before_the_end(broker, tmp_path):
    write(broker, *[numbered(first, TURN, 1) for first in range(0, 30, TURN)])
    restoring = Restoring(broker, tmp_path, most=1 << 20)
    restoring.turn()

    assert restoring.store.approximate_uncommitted_bytes
    assert changelog_position(restoring.store) == 0
    restoring.to_the_end()
    assert (changelog_position(restoring.store), restoring.store.approximate_uncommitted_bytes) == (30, 0)
    restoring.crash()


@pytest.mark.case
@pytest.mark.parametrize("spec", [KV, VERSIONED, WINDOWS], ids=lambda spec: spec.kind.name)
def test_restoring_goes_on_after_any_number_of_turns_as_if_it_had_never_stopped(broker, tmp_path, spec):
    """Keys are updated and deleted again and again, so that a turn left out or done out of order would show."""
    source = open_store(spec, default_engine="in_memory")
    with Producer(broker, client_id="plain") as producer:
        for number in range(60):
            key, value = f"k{number * 7 % 11}", None if number % 5 == 3 else number
            source.put(key, value) if spec is KV else source.put(key, value, number * 3)
            changes = source.drain_changes()
            assert changes is not None
            producer.send_block(CHANGELOG, changes)
    whole = list(source.snapshot_blocks())

    for turns in range(1, 7):
        path = tmp_path / str(turns)
        for _ in range(2):
            left = Restoring(broker, path, spec)
            for _ in range(turns):
                left.turn()
            left.crash()
        again = Restoring(broker, path, spec)
        while again.restorer.is_restoring(TASK):
            again.turn()
        found = list(again.store.snapshot_blocks())
        assert [(list(b.keys), list(b.values)) for b in found] == [(list(b.keys), list(b.values)) for b in whole]
        again.crash()
    source.close()


def test_records_of_aborted_transactions_are_never_written_as_state(broker, tmp_path):
    """Exactly once: the position passes over them, and waits before a transaction that is open."""
    settings = {"transactional_id": "tx", "transaction_timeout_ms": WATCHDOG_MS}
    with Producer(broker, client_id="tx", **settings) as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            producer.send_block(CHANGELOG, block(numbered(number * TURN, TURN, number)))
            producer.commit_transaction() if number % 2 == 0 else producer.abort_transaction()
        producer.begin_transaction()
        producer.send_block(CHANGELOG, block(numbered(0, TURN, 99)))
        producer.flush()
        committed = {key: value for number in (0, 2, 4) for key, value in numbered(number * TURN, TURN, number).items()}

        seen: list[int] = []
        while len(seen) < 3:
            # Left after each turn: the next one goes on from what was written.
            restoring = Restoring(broker, tmp_path, isolation_level="read_committed")
            restoring.turn()
            assert dict(restoring.store.all()).items() <= committed.items()
            seen.append(changelog_position(restoring.store))
            restoring.crash()
        assert seen == [10, 32, 54]
        last = Restoring(broker, tmp_path, isolation_level="read_committed")
        for _ in range(5):
            last.restorer.poll()
        assert (last.restorer.is_restoring(TASK), dict(last.store.all())) == (True, committed)
        producer.abort_transaction()

    assert last.to_the_end() == committed
    last.crash()


def test_the_limit_is_for_all_stores_that_are_restored_at_a_time(broker, tmp_path):
    write(broker, numbered(0, TURN, 1))
    stores = {name: open_store(KV, tmp_path / name, default_engine="rocksdb") for name in ("one", "two")}
    broker.create_topic("other", 1)
    with Producer(broker, client_id="other") as producer:
        producer.send_block(TopicPartition("other", 0), block(numbered(0, 100, 2)))
        producer.send_block(CHANGELOG, block(numbered(20, 100, 1)))
    consumer = Consumer(broker, client_id="restore", auto_offset_reset="earliest")
    one_turn = 10 * (150 + 12)
    restorer = Restorer(consumer, TURN, max_uncommitted_bytes=one_turn)
    begin(restorer, stores, {"one": CHANGELOG, "two": TopicPartition("other", 0)})
    while restorer.is_restoring(TASK):
        restorer.poll()
        assert sum(store.approximate_uncommitted_bytes for store in stores.values()) <= one_turn

    assert [len(list(store.all())) for store in stores.values()] == [110, 100]
    restorer.close()
    for store in stores.values():
        store.close()


@pytest.mark.slow
def test_long_restore_leaves_a_store_like_any_other(broker, tmp_path):
    """So many records that the store is prepared for them; it is left in between, too."""
    count = 60_000
    entries = {f"k{number:05}": number for number in range(count)}
    write(broker, entries)
    restoring = Restoring(broker, tmp_path, most=1 << 20)
    restoring.turn()
    restoring.crash()

    restoring = Restoring(broker, tmp_path, most=1 << 20)
    assert restoring.to_the_end() == entries
    restoring.store.put("k00000", 7)
    restoring.store.commit({})
    assert restoring.store.get("k00000") == 7
    assert changelog_position(restoring.store) == count
    restoring.crash()
