"""A sink worker: positions, batches, errors, rebalances and the end."""

import sqlite3
from itertools import count
from pathlib import Path

import pytest

from streams.broker import EmbeddedBroker
from streams.clients import Consumer, Producer
from streams.connect import ConnectError, SinkFencedError, SinkWorker
from streams.core.errors import ClientClosedError, ConfigError, SerializationError
from streams.core.topic import Topic
from tests.connect.notebook import NotebookSink, rows_in
from tests.waiting import WATCHDOG_MS, pause, until

NUMBERS = Topic("numbers", key=str, value=int)


@pytest.fixture
def broker():
    with EmbeddedBroker() as made:
        made.create_topic("numbers", 2)
        yield made


def produce(broker, values, *, transactional_id=None):
    with Producer(broker, transactional_id=transactional_id or "") as producer:
        if transactional_id:
            producer.init_transactions()
            producer.begin_transaction()
        for value in values:
            producer.send(NUMBERS, value, key=str(value), timestamp_ms=value)
        if transactional_id:
            producer.commit_transaction()


def values_in(path: Path) -> list[int]:
    return sorted(row[3] for row in rows_in(path))


def written(worker: SinkWorker, path: Path, count: int) -> None:
    until(lambda: len(rows_in(path)) >= count and worker.progress.lag == 0, seen=lambda: worker.progress)


def has_read(worker: SinkWorker, count: int) -> None:
    """Wait until a worker has read so many records, of which it may have written some.

    Its lag does not say so: that has those too that it has not read yet.
    """

    def records() -> int:
        return worker.progress.records + worker._records

    until(lambda: records() == count, seen=lambda: worker.progress)


def test_every_record_is_written_and_the_next_worker_goes_on_at_the_position(broker, tmp_path):
    path = tmp_path / "rows"
    produce(broker, range(50))
    with SinkWorker(broker, NUMBERS, NotebookSink(path), name="notes", batch_ms=5) as worker:
        written(worker, path, 50)
        produce(broker, range(50, 70), transactional_id="others")
        written(worker, path, 70)
        progress = worker.progress
    produce(broker, range(70, 80))
    with SinkWorker(broker, NUMBERS, NotebookSink(path), name="notes", batch_ms=5) as worker:
        written(worker, path, 80)

    assert values_in(path) == list(range(80))
    assert progress.records == 70
    assert progress.bytes > 0
    assert progress.last_error is None


def test_a_batch_that_is_not_complete_is_written_at_the_end(broker, tmp_path):
    path = tmp_path / "rows"
    produce(broker, range(10))
    with SinkWorker(broker, NUMBERS, NotebookSink(path), name="notes", batch_ms=3_600_000) as worker:
        has_read(worker, 10)
        until(lambda: worker.progress.lag == 10)
        assert rows_in(path) == []

    assert values_in(path) == list(range(10))


def test_a_passing_error_is_retried_and_nothing_is_written_twice(broker, tmp_path):
    path, sink = tmp_path / "rows", NotebookSink(tmp_path / "rows")
    sink.failures = [sqlite3.OperationalError("database is locked")] * 3
    produce(broker, range(20))
    with SinkWorker(broker, NUMBERS, sink, name="notes", batch_ms=5, retry_backoff_ms=1) as worker:
        written(worker, path, 20)

    assert values_in(path) == list(range(20))
    assert worker.progress.retries == 3
    assert worker.progress.last_error == "OperationalError: database is locked"


def test_a_target_that_cannot_be_opened_at_the_first_start_is_tried_again(broker, tmp_path):
    """No position is known then, neither from the target nor from the group."""

    class Away(NotebookSink):
        left = 2

        def open(self, connector, topic, partitions):
            if self.left:
                self.left -= 1
                raise sqlite3.OperationalError("unable to open database file")
            return super().open(connector, topic, partitions)

    path = tmp_path / "rows"
    produce(broker, range(20))
    with SinkWorker(broker, NUMBERS, Away(path), name="notes", batch_ms=5, retry_backoff_ms=1) as worker:
        written(worker, path, 20)

    assert values_in(path) == list(range(20))
    assert worker.progress.retries == 2


def test_errors_that_do_not_pass_end_the_worker_with_the_cause(broker, tmp_path):
    sink = NotebookSink(tmp_path / "rows")
    sink.failures = [sqlite3.OperationalError("database is locked")] * 1000
    produce(broker, [1])
    worker = SinkWorker(broker, NUMBERS, sink, name="notes", batch_ms=0, retry_backoff_ms=1, retry_timeout_ms=20)

    with pytest.raises(ConnectError, match=r"retry_timeout_ms=20 without success: .* database is locked"):
        worker.run()


def test_another_error_ends_the_worker_at_once(broker, tmp_path):
    sink = NotebookSink(tmp_path / "rows")
    sink.failures = [ValueError("no such column")]
    produce(broker, [1])
    worker = SinkWorker(broker, NUMBERS, sink, name="notes", batch_ms=0)

    with pytest.raises(ValueError, match="no such column"):
        worker.run()
    assert worker.progress.last_error == "ValueError: no such column"
    with pytest.raises(ClientClosedError, match="started before"):
        worker.run()


def test_the_end_of_a_with_block_raises_the_error_of_the_worker(broker, tmp_path):
    sink = NotebookSink(tmp_path / "rows")
    sink.failures = [ValueError("no such column")]
    produce(broker, [1])

    with pytest.raises(ValueError, match="no such column"):
        with SinkWorker(broker, NUMBERS, sink, name="notes", batch_ms=0) as worker:
            until(lambda: not worker.is_running)


def unreadable(broker):
    produce(broker, [1])
    with Producer(broker) as producer:
        producer.send("numbers", b"short", key=b"bad", partition=0, headers=[("h", b"1")])
    produce(broker, [2])


def test_an_unreadable_record_ends_the_worker_with_its_place(broker, tmp_path):
    unreadable(broker)

    with pytest.raises(SerializationError, match=r"sink 'notes': numbers-0, offset \d+: .*continue"):
        SinkWorker(broker, NUMBERS, NotebookSink(tmp_path / "rows"), name="notes", batch_ms=0).run()


def test_unreadable_records_are_counted_and_sent_to_the_dead_letters(broker, tmp_path):
    path = tmp_path / "rows"
    broker.create_topic("dead", 1)
    unreadable(broker)
    handling = {"deserialization_handler": "continue", "errors_dead_letter_queue_topic_name": "dead"}
    with SinkWorker(broker, NUMBERS, NotebookSink(path), name="notes", batch_ms=5, **handling) as worker:
        written(worker, path, 2)

    assert values_in(path) == [1, 2]
    assert worker.progress.skipped == 1
    with Consumer(broker, "dead-readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["dead"])
        letters = []
        until(lambda: letters, turn=lambda: letters.extend(consumer.poll(1_000)))
    (letter,) = letters
    assert (letter.key, letter.value, letter.headers[0]) == (b"bad", b"short", ("h", b"1"))
    assert dict(letter.headers)["__streams.errors.node"] == b"notes"


@pytest.mark.slow
def test_two_workers_share_the_partitions_and_one_takes_over(broker, tmp_path):
    path = tmp_path / "rows"
    produce(broker, range(100))
    first = SinkWorker(broker, NUMBERS, NotebookSink(path), name="notes", batch_ms=5, session_timeout_ms=WATCHDOG_MS)
    second = SinkWorker(broker, NUMBERS, NotebookSink(path), name="notes", batch_ms=5, session_timeout_ms=WATCHDOG_MS)
    first.start()
    until(lambda: len(rows_in(path)) >= 50)
    second.start()
    at = count(100)

    def more() -> None:
        produce(broker, [next(at)])
        pause()

    until(lambda: second.progress.records > 0, turn=more)
    first.close()
    produce(broker, [next(at)])
    last = next(at)
    until(lambda: len(rows_in(path)) >= last and second.progress.lag == 0)
    second.close()

    assert values_in(path) == list(range(last))


def test_a_worker_that_another_one_overtook_writes_nothing_twice(broker, tmp_path):
    """The zombie: it has read records, and somebody else has written them."""
    path = tmp_path / "rows"
    produce(broker, range(10))
    with pytest.raises(SinkFencedError, match="partition 0 is at"):
        with SinkWorker(broker, NUMBERS, NotebookSink(path), name="notes", batch_ms=3_600_000) as worker:
            has_read(worker, 10)
            with SinkWorker(broker, NUMBERS, NotebookSink(path), name="other", batch_ms=5) as other:
                written(other, path, 10)

    assert values_in(path) == list(range(10))


def test_a_worker_that_was_overtaken_joins_anew_and_goes_on(broker, tmp_path):
    path = tmp_path / "rows"
    produce(broker, range(10))
    with SinkWorker(broker, NUMBERS, NotebookSink(path), name="notes", batch_ms=3_600_000, batch_records=11) as worker:
        has_read(worker, 10)
        with SinkWorker(broker, NUMBERS, NotebookSink(path), name="other", batch_ms=5) as other:
            written(other, path, 10)
        produce(broker, range(10, 30))
        until(lambda: worker.progress.records > 0, seen=lambda: worker.progress)
        # At its end it writes what it has read.
        has_read(worker, 20)

    assert worker.progress.fenced == 1
    assert values_in(path) == list(range(30))


def test_a_position_behind_the_end_of_the_log_is_refused(broker, tmp_path):
    path = tmp_path / "rows"
    produce(broker, range(10))
    with SinkWorker(broker, NUMBERS, NotebookSink(path), name="notes", batch_ms=5) as worker:
        written(worker, path, 10)
    with EmbeddedBroker() as anew:
        anew.create_topic("numbers", 2)

        with pytest.raises(ConfigError, match=r"its position in numbers-0 is .*, but the log ends at 0: the topic was"):
            SinkWorker(anew, NUMBERS, NotebookSink(path), name="notes").run()


def test_settings_are_checked(broker, tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'batch_records'"):
        SinkWorker(broker, NUMBERS, NotebookSink(tmp_path / "rows"), name="notes", batch_record=1)


def test_a_worker_waits_for_its_topic(tmp_path):
    path = tmp_path / "rows"
    with EmbeddedBroker(auto_create_topics=False) as broker:
        with SinkWorker(broker, NUMBERS, NotebookSink(path), name="notes", batch_ms=5) as worker:
            until(lambda: worker.is_running)
            broker.create_topic("numbers", 1)
            produce(broker, [1])
            written(worker, path, 1)
