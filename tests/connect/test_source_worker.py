"""A source worker: blocks and positions in one transaction, errors, and one worker of a name."""

import pytest

from streams.broker import EmbeddedBroker
from streams.clients import Consumer
from streams.connect import ConnectError, SourceBlock, SourceWorker
from streams.core.blocks.records import TopicPartition
from streams.core.errors import ProducerFencedError, SerializationError, UnknownTopicError
from streams.core.topic import Topic
from tests.connect.notebook import ListSource
from tests.waiting import until

NUMBERS = Topic("numbers", key=str, value=int)


@pytest.fixture
def broker():
    with EmbeddedBroker(auto_create_topics=False) as made:
        made.create_topic("numbers", 2)
        yield made


def values_in(broker) -> list[int]:
    with Consumer(broker, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        partitions = [TopicPartition("numbers", 0), TopicPartition("numbers", 1)]
        consumer.assign(partitions, [NUMBERS])
        consumer.seek_to_beginning(partitions)
        ends = consumer.end_offsets(partitions)
        found = []
        while any((consumer.known_position(partition) or 0) < end for partition, end in ends.items()):
            found += [record.value for record in consumer.poll(100)]
        return sorted(found)


def test_a_source_is_written_once_and_the_next_worker_goes_on(broker):
    first, second = ListSource(range(20)), ListSource(range(30))
    with SourceWorker(broker, NUMBERS, first, name="numbers-in", poll_ms=5) as worker:
        until(lambda: worker.progress.records == 20)
    with SourceWorker(broker, NUMBERS, second, name="numbers-in", poll_ms=5) as worker:
        until(lambda: worker.progress.records == 10)

    assert values_in(broker) == list(range(30))
    assert first.committed_at[-1] == 20
    assert second.opened_at == [20]


def test_records_are_partitioned_by_key_as_by_every_client(broker):
    with SourceWorker(broker, NUMBERS, ListSource(range(50), 50), name="numbers-in", poll_ms=5) as worker:
        until(lambda: worker.progress.records == 50)
    with Consumer(broker, "readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([NUMBERS])
        found = []
        until(lambda: len(found) == 50, turn=lambda: found.extend(consumer.poll(1_000)))

    homes = {(record.key, record.partition) for record in found}
    assert len(homes) == 5
    assert {partition for _, partition in homes} == {0, 1}


def test_a_passing_error_opens_the_source_again_at_the_stored_position(broker):
    source = ListSource(range(20))
    source.failures = [OSError("away")] * 3
    with SourceWorker(broker, NUMBERS, source, name="numbers-in", poll_ms=5, retry_backoff_ms=1) as worker:
        until(lambda: worker.progress.records == 20)

    assert values_in(broker) == list(range(20))
    assert worker.progress.retries == 3


def test_errors_that_do_not_pass_end_the_worker(broker):
    source = ListSource(range(20))
    source.failures = [OSError("away")] * 1_000
    with pytest.raises(ConnectError, match=r"source 'numbers-in': .* without success: OSError: away"):
        SourceWorker(broker, NUMBERS, source, name="numbers-in", retry_backoff_ms=1, retry_timeout_ms=20).run()

    with pytest.raises(SerializationError):
        SourceWorker(broker, NUMBERS, ListSource([1, 2, 1 << 70]), name="numbers-in").run()
    assert values_in(broker) == []


def test_a_second_worker_of_the_name_fences_the_first(broker):
    class Endless(ListSource):
        def poll(self, timeout_ms):
            self._at += 1
            return [SourceBlock("all", self._at, ["k"], [self._at])]

    first = SourceWorker(broker, NUMBERS, Endless([]), name="numbers-in")
    first.start()
    until(lambda: first.progress.records > 5)
    with SourceWorker(broker, NUMBERS, Endless([]), name="numbers-in") as second:
        with pytest.raises(ProducerFencedError, match="another worker with this name was started"):
            first.wait()
        until(lambda: second.progress.records > 5)

    found = values_in(broker)
    assert found == list(range(1, len(found) + 1))


def test_a_topic_that_does_not_exist_is_an_error():
    with EmbeddedBroker(auto_create_topics=False) as broker, pytest.raises(UnknownTopicError, match="numbers"):
        SourceWorker(broker, NUMBERS, ListSource([1]), name="numbers-in").run()
