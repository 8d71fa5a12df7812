"""Records that a handler skips go to the dead letter queue, with what went wrong (KIP-1034)."""

import logging
from datetime import timedelta

from streams import StreamsBuilder, TimeWindows, Topic
from streams.bounded import run_bounded
from streams.core.blocks.records import Block
from streams.testing import TopologyTestDriver

numbers = Topic("numbers", key=str, value=int)
shares = Topic("shares", key=str, value=int)
dead = Topic("dead", key=bytes, value=bytes)
words = Topic("words", value=int)
sizes = Topic("sizes", value=int)


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
        assert run.metric("dropped-records-total") == 1

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
        assert run.metric("dropped-records-total", "divide") == 1

    assert (letter.key, letter.value) == (b"a", bytes(8))
    assert dict(letter.headers)["__streams.errors.exception"] == b"builtins.ZeroDivisionError"


def test_without_the_queue_records_are_only_counted():
    with TopologyTestDriver(topology, processing_handler="continue") as run:
        run.pipe(numbers, 0, key="a", timestamp_ms=1)

        assert dead.name not in run.topics()
        assert run.metric("dropped-records-total") == 1


def test_dead_letter_says_nothing_of_other_records():
    """Two records that cannot be read in one block: reading the block fails at the first of them."""
    rows = ["first", "second"]

    def application(builder: StreamsBuilder) -> None:
        builder.stream(words).to(sizes)

    def block(partitions: int, skip: int):
        values = [row.encode() for row in rows]
        yield [(0, Block([None] * 2, values, [1, 2], None, range(2)))]

    settings = {"deserialization_handler": "continue", "errors_dead_letter_queue_topic_name": "dead"}
    with run_bounded(application, {"words": block}, application_id="dead", settings=settings) as run:
        letters = [
            (value, dict(headers)) for _, found in run.read_output("dead") for _, _, value, _, headers in found.rows()
        ]

    for (value, headers), other in zip(letters, reversed(rows), strict=True):
        assert headers["__streams.errors.exception"] == b"streams.core.errors.SerializationError"
        assert value in headers["__streams.errors.stacktrace"]
        assert not any(other.encode() in content for content in headers.values())


def test_dead_letter_has_the_bytes_that_were_read():
    """Not those that the serde makes of the object again."""
    plain = Topic("plain", key=str, value=dict[str, int])
    with TopologyTestDriver(
        lambda builder: builder.stream(plain).map_values(lambda value: 1 // value["a"]).to(shares),
        processing_handler="continue",
        errors_dead_letter_queue_topic_name="dead",
    ) as run:
        run.pipe_bytes("plain", b"k", b'{ "a":  0 }', 1)

        assert [letter.value for letter in run.read_records(dead)] == [b'{ "a":  0 }']


def test_exception_of_a_dead_letter_is_the_one_that_was_raised():
    """Its class, message and stack trace are of one error, whatever its cause is."""

    def fails(value: int) -> int:
        raise ValueError("bad value") from LookupError("why")

    with TopologyTestDriver(
        lambda builder: builder.stream(numbers).map_values(fails).to(shares),
        processing_handler="continue",
        errors_dead_letter_queue_topic_name="dead",
    ) as run:
        run.pipe(numbers, 1, key="a", timestamp_ms=1)

        (letter,) = run.read_records(dead)

    headers = dict(letter.headers)
    assert headers["__streams.errors.exception"] == b"builtins.ValueError"
    assert headers["__streams.errors.message"] == b"bad value"


def test_late_records_are_told_with_their_reason():
    def counting(builder: StreamsBuilder) -> None:
        windows = TimeWindows.of(timedelta(milliseconds=10))
        builder.stream(numbers).group_by_key().windowed_by(windows).count("count")

    with TopologyTestDriver(counting) as run:
        run.pipe_all(numbers, [("a", 1, 100), ("a", 1, 5), ("a", 1, 6)])

        assert list(map(str, run.drops())) == ["2 records were dropped at count: late"]


def test_records_that_find_no_row_or_have_no_key_to_be_grouped_by_are_counted_at_their_node_only():
    def joining(builder: StreamsBuilder) -> None:
        table = builder.table(shares)
        joined = builder.stream(numbers).join(table, lambda number, share: number + share, name="join")
        joined.group_by(lambda _, __: None, name="nothing").count("count")

    with TopologyTestDriver(joining) as run:
        run.pipe(shares, 1, key="a", timestamp_ms=0)
        run.pipe_all(numbers, [("a", 1, 0), ("b", 1, 1), ("c", 1, 2)])

        assert sorted((drop.node, drop.reason, drop.count) for drop in run.drops()) == [
            ("join", "unjoined", 2),
            ("nothing-repartition-filter", "null key", 1),
        ]
        assert run.metric("dropped-records-total") == 0


def test_record_without_a_valid_time_is_told_once_with_its_place(caplog):
    caplog.set_level(logging.INFO, "streams.runtime.tasks.sources")
    with TopologyTestDriver(topology, default_timestamp_extractor="log_and_skip") as run:
        run.pipe_bytes("numbers", b"a", bytes(8), -1)

        (found,) = run.drops()

    assert (found.reason, found.example) == ("invalid timestamp", "numbers-0 at offset 0: timestamp -1")
    assert caplog.messages == ["numbers-0 at offset 0 has the invalid timestamp -1; the record is dropped"]
