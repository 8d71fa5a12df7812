"""Exactly once: outputs, changelogs and offsets of a commit count together or not at all."""

import pytest

from streams import (
    Consumer,
    EmbeddedBroker,
    ExceptionResponse,
    Processor,
    Producer,
    Streams,
    StreamsBuilder,
    Topic,
    TopicPartition,
)
from tests import waiting

words = Topic("words", key=str, value=str)
counts = Topic("counts", key=str, value=int)
KEYS = [f"w{number}" for number in range(20)]
FAST = {
    "commit_interval_ms": 20,
    "poll_ms": 10,
    "heartbeat_interval_ms": 10,
    "processing_guarantee": "exactly_once_v2",
}


def counting(builder: StreamsBuilder) -> None:
    builder.stream(words).group_by(lambda _, word: word).count("counts-store").to_stream().to(counts)


class Committed:
    """Reads what counts: every committed count, in order."""

    def __init__(self, broker):
        self.consumer = Consumer(
            broker, client_id="watch", auto_offset_reset="earliest", isolation_level="read_committed",
            fetch_max_wait_ms=50,
        )  # fmt: skip
        self.consumer.assign([TopicPartition("counts", number) for number in range(2)], [counts])
        self.seen = {}

    def until(self, holds):
        waiting.until(holds, self.read, lambda: self.seen)

    def read(self):
        for record in self.consumer.poll(50):
            self.seen.setdefault(record.key, []).append(record.value)


def write(broker, rounds):
    with Producer(broker, client_id="writer") as producer:
        for number in range(rounds):
            for key in KEYS:
                producer.send(words, key, key=key, timestamp_ms=number)


@pytest.fixture
def broker():
    with EmbeddedBroker() as made:
        made.create_topic("words", 2)
        made.create_topic("counts", 2)
        yield made


def test_every_count_is_committed_once_and_in_order(broker):
    watch = Committed(broker)
    with Streams(counting, application_id="app", broker=broker, num_stream_threads=2, **FAST):
        write(broker, 30)
        watch.until(lambda: all(len(watch.seen.get(key, ())) >= 30 for key in KEYS))

    assert watch.seen == {key: list(range(1, 31)) for key in KEYS}


def test_thread_that_has_lost_its_membership_since_its_last_poll_does_not_commit(broker, caplog):
    """A broker takes offsets without a member as those of no group, even if other members have the tasks by now."""
    lost = []

    class Losing(Processor):
        def process(self, record):
            self.context.forward(record.key, record.value)
            if record.key == KEYS[7] and not lost:
                lost.append(record)
                # As the answer to a heartbeat does that comes while the thread waits for its producer.
                streams.instance.stream_threads[0].consumer._session.member._reset(keep_member_id=True)
                self.context.commit()

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(words).process(Losing).group_by_key().count("counts-store").to_stream().to(counts)

    watch = Committed(broker)
    with Streams(topology, application_id="app", broker=broker, **FAST) as streams:
        write(broker, 3)
        watch.until(lambda: all(len(watch.seen.get(key, ())) >= 3 for key in KEYS))

    assert watch.seen == {key: [1, 2, 3] for key in KEYS}
    assert any("reopens its tasks: group 'app' has removed this member" in message for message in caplog.messages)


def test_records_that_a_failed_thread_had_sent_are_not_committed(broker):
    """It fails in the middle of a transaction, five times: its successor begins at the last commit."""
    failures = [3, 33, 77, 120, 180]
    handled = []

    def topology(builder: StreamsBuilder) -> None:
        seen = []

        def check(word: str) -> str:
            seen.append(word)
            if failures and len(seen) > failures[0]:
                failures.pop(0)
                raise RuntimeError("a bad moment")
            return word

        counted = builder.stream(words).map_values(check).group_by(lambda _, word: word).count("counts-store")
        counted.to_stream().to(counts)

    def replace(error):
        handled.append(error)
        return ExceptionResponse.REPLACE_THREAD

    watch = Committed(broker)
    with Streams(topology, application_id="app", broker=broker, on_exception=replace, **FAST):
        write(broker, 20)
        watch.until(lambda: all(len(watch.seen.get(key, ())) >= 20 for key in KEYS))

    assert len(handled) == 5
    assert watch.seen == {key: list(range(1, 21)) for key in KEYS}


def test_offsets_and_state_are_those_of_the_committed_records_after_restarts(broker, tmp_path):
    """Closed and started again on the same state: nothing is counted twice, nothing left out."""
    watch = Committed(broker)
    for rounds in (10, 20, 30):
        with Streams(counting, application_id="app", broker=broker, state_dir=tmp_path, **FAST):
            write(broker, 10)
            watch.until(lambda: all(len(watch.seen.get(key, ())) >= rounds for key in KEYS))  # noqa: B023

    assert watch.seen == {key: list(range(1, 31)) for key in KEYS}


def test_uncommitted_reader_sees_more_than_counts(broker):
    """Which is why results are to be read with read_committed."""
    failures = [True]
    copied: set[str] = set()

    def topology(builder: StreamsBuilder) -> None:
        def check(word: str) -> str:
            if word == KEYS[-1] and failures:
                failures.clear()
                copied.clear()
                raise RuntimeError("a bad moment")
            copied.add(word)
            return word

        builder.stream(words).map_values(check).to(Topic("copies", key=str, value=str))

    broker.create_topic("copies", 1)
    with Streams(
        topology, application_id="app", broker=broker, on_exception=lambda _: ExceptionResponse.REPLACE_THREAD,
        **(FAST | {"max_poll_records": 5, "commit_interval_ms": 60_000}),
    ) as streams:  # fmt: skip
        write(broker, 1)
        plain = Consumer(broker, client_id="plain", auto_offset_reset="earliest", fetch_max_wait_ms=50)
        plain.assign([TopicPartition("copies", 0)])
        copies = []
        # The failure undoes what was copied before it, and all is copied again.
        while streams.failure is None and (len(copies) <= len(KEYS) or len(copied) < len(KEYS)):
            copies += [record.value for record in plain.poll(50)]
    committed = Consumer(broker, client_id="committed", auto_offset_reset="earliest", isolation_level="read_committed")
    committed.assign([TopicPartition("copies", 0)])
    end = committed.end_offsets([TopicPartition("copies", 0)])[TopicPartition("copies", 0)]
    counted = []
    while committed.position(TopicPartition("copies", 0)) < end:
        counted += [record.value for record in committed.poll(50)]

    assert sorted(counted) == sorted(key.encode() for key in KEYS)
    assert len(copies) > len(counted)
