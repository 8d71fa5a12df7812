"""Records that a handler skips go to the dead letter queue, with what went wrong (KIP-1034)."""

from streams import StreamsBuilder, Topic
from streams.testing import TopologyTestDriver

numbers = Topic("numbers", key=str, value=int)
shares = Topic("shares", key=str, value=int)
dead = Topic("dead", key=bytes, value=bytes)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(numbers).map_values(lambda number: 100 // number, name="divide").to(shares)


def driver(**settings):
    return TopologyTestDriver(topology, errors_dead_letter_queue_topic_name="dead", **settings)


def test_record_that_cannot_be_read_keeps_its_bytes():
    with driver(deserialization_handler="continue") as run:
        run.pipe_bytes("numbers", b"a", b"short", 7, (("h", b"1"),))
        run.pipe(numbers, 4, key="b", timestamp_ms=8)

        (letter,) = run.read_records(dead)
        assert run.read(shares) == [("b", 25)]
        assert run.metric("dropped-records") == 1

    assert (letter.key, letter.value, letter.timestamp_ms) == (b"a", b"short", 7)
    headers = dict(letter.headers)
    assert headers["h"] == b"1"
    assert headers["__streams.errors.topic"] == b"numbers"
    assert headers["__streams.errors.offset"] == b"0"


def test_record_on_which_user_code_fails_is_the_source_record():
    with driver(processing_handler="continue") as run:
        run.pipe(numbers, 0, key="a", timestamp_ms=1)
        run.pipe(numbers, 5, key="a", timestamp_ms=2)

        (letter,) = run.read_records(dead)
        assert run.read(shares) == [("a", 20)]
        assert run.metric("dropped-records", "divide") == 1

    assert (letter.key, letter.value) == (b"a", bytes(8))
    assert dict(letter.headers)["__streams.errors.exception"] == b"builtins.ZeroDivisionError"


def test_without_the_queue_records_are_only_counted():
    with TopologyTestDriver(topology, processing_handler="continue") as run:
        run.pipe(numbers, 0, key="a", timestamp_ms=1)

        assert run.read_records(dead) == []
        assert run.metric("dropped-records") == 1
