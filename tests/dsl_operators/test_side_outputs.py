"""What operators drop is a stream: with key, value and timestamp of its own, and the reason in its headers."""

from datetime import timedelta

import pytest

from streams import (
    DropNote,
    EmitStrategy,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    Topic,
    TopologyError,
)
from streams.core.blocks.records import Window
from streams.core.metrics import DropReason
from streams.testing import TopologyTestDriver

SECOND = timedelta(seconds=1)
orders, others = Topic("orders", key=str, value=int), Topic("others", key=str, value=int)
out, lost = Topic("out", key=str, value=int), Topic("lost", key=str, value=int)


def aggregated(windowed, how):
    if how == "count":
        return windowed.count()
    if how == "reduce":
        return windowed.reduce(lambda one, two: one + two)
    if isinstance(windowed._ref.windowing.windows, SessionWindows):
        return windowed.aggregate(lambda: 0, lambda key, value, total: total + value, lambda key, a, b: a + b)
    return windowed.aggregate(lambda: 0, lambda key, value, total: total + value, value=int)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("how", ["count", "reduce", "aggregate"])
@pytest.mark.parametrize("on_close", [False, True])
@pytest.mark.parametrize(
    ("windows", "window", "late_ms"),
    [
        (TimeWindows.of(SECOND, grace=SECOND), Window(0, 1000), 7000),
        (SlidingWindows.of(SECOND), Window(600, 1600), 7400),
        (SessionWindows.of(SECOND), Window(600, 600), 7400),
    ],
)
def test_late_records_tell_their_window_and_by_how_much_they_are_late(
    windows, window, late_ms, on_close, how, partitions
):
    def topology(builder: StreamsBuilder) -> None:
        windowed = builder.stream(orders).group_by_key().windowed_by(windows)
        if on_close:
            windowed = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        windowed.late().to(lost)
        aggregated(windowed, how).to_stream(tombstones=False).map(lambda key, value: (key.key, value)).to(out)

    driver = TopologyTestDriver(topology, partitions=partitions)
    driver.pipe(orders, 5, key="a", timestamp_ms=9000)
    driver.pipe(orders, 7, key="a", timestamp_ms=600, headers=(("trace", b"1"),))

    (record,) = driver.read_records(lost)
    note = DropNote.of(record.headers)
    assert (record.key, record.value, record.timestamp_ms) == ("a", 7, 600)
    assert record.headers[0] == ("trace", b"1")
    assert note is not None
    assert (note.reason, note.window, note.late_ms, note.stream_time_ms) == (DropReason.LATE, window, late_ms, 9000)
    assert [drop.node for drop in driver.drops()] == [note.node]


def test_without_side_outputs_the_program_has_no_line_for_them():
    def topology(uses_late):
        def build(builder: StreamsBuilder) -> None:
            windowed = builder.stream(orders).group_by_key().windowed_by(TimeWindows.of(SECOND))
            windowed.count("counts").to_stream().map(lambda key, value: (key.key, value)).to(out)
            if uses_late:
                windowed.late("late").to(lost)

        return build

    for uses_late in (False, True):
        driver = TopologyTestDriver(topology(uses_late))
        assert ("lost" in driver._tasks[0].program.source_code) == uses_late


def test_late_records_can_be_counted_and_repaired_like_any_stream():
    def topology(builder: StreamsBuilder) -> None:
        windowed = builder.stream(orders).group_by_key().windowed_by(TimeWindows.of(SECOND))
        windowed.count().to_stream().map(lambda key, value: (key.key, value)).to(out)
        late = windowed.late()
        late.group_by_key().count("late-counts").to_stream().to(lost)

    driver = TopologyTestDriver(topology)
    for time_ms in (9000, 100, 200):
        driver.pipe(orders, 1, key="a", timestamp_ms=time_ms)

    assert driver.read(lost) == [("a", 1), ("a", 2)]
    assert driver.store("late-counts").get("a").value == 2


@pytest.mark.parametrize("is_first", [True, False])
def test_several_streams_of_late_records_are_equal(is_first):
    def topology(builder: StreamsBuilder) -> None:
        windowed = builder.stream(orders).group_by_key().windowed_by(TimeWindows.of(SECOND))
        if not is_first:
            windowed.count()
        windowed.late("one").to(out)
        windowed.late("two").to(lost)
        windowed.late().to(lost)
        if is_first:
            windowed.count()

    driver = TopologyTestDriver(topology)
    for time_ms in (9000, 100):
        driver.pipe(orders, 1, key="a", timestamp_ms=time_ms)

    assert driver.read(out) == [("a", 1)]
    assert driver.read(lost) == [("a", 1), ("a", 1)]


@pytest.mark.parametrize("by", ["late first", "late last"])
def test_values_of_a_repartitioned_count_are_read_for_late_records(by):
    """A count alone would not read the values of its repartition topic."""

    def topology(builder: StreamsBuilder) -> None:
        windowed = builder.stream(orders).group_by(lambda key, value: "all").windowed_by(TimeWindows.of(SECOND))
        if by == "late first":
            with pytest.raises(TopologyError, match=r"call late\(\) or dropped\(\) after the aggregation"):
                windowed.late()
        windowed.count().to_stream().map(lambda key, value: (key.key, value)).to(out)
        windowed.late().to(lost)

    driver = TopologyTestDriver(topology)
    driver.pipe(orders, 1, key="a", timestamp_ms=9000)
    driver.pipe(orders, 7, key="b", timestamp_ms=0)

    assert driver.read(lost) == [("all", 7)]


def test_late_records_of_a_cogroup_come_from_all_its_streams():
    def topology(builder: StreamsBuilder) -> None:
        one, two = builder.stream(orders).group_by_key(), builder.stream(others).group_by_key()
        both = one.cogroup(lambda key, value, total: total + value, value=int)
        windowed = both.cogroup(two, lambda key, value, total: total - value).windowed_by(TimeWindows.of(SECOND))
        windowed.aggregate(lambda: 0).to_stream().map(lambda key, value: (key.key, value)).to(out)
        windowed.late().to(lost)

    driver = TopologyTestDriver(topology)
    for topic in (orders, others):
        driver.pipe(topic, 1, key="a", timestamp_ms=9000)
    for topic in (orders, others):
        driver.pipe(topic, 7, key="a", timestamp_ms=0)

    assert driver.read(lost) == [("a", 7), ("a", 7)]


def test_what_a_cogroup_without_windows_drops():
    def topology(builder: StreamsBuilder) -> None:
        one, two = builder.stream(orders).group_by_key(), builder.stream(others).group_by_key()
        both = one.cogroup(lambda key, value, total: total + value, value=int)
        both = both.cogroup(two, lambda key, value, total: total - value)
        both.dropped().to(lost)
        both.aggregate(lambda: 0).to_stream().to(out)

    driver = TopologyTestDriver(topology)
    driver.pipe(orders, 1, timestamp_ms=0)
    driver.pipe(others, None, key="a", timestamp_ms=0)
    driver.pipe(others, 1, key="a", timestamp_ms=0)

    assert driver.read(lost) == [(None, 1), ("a", None)]
    assert driver.read(out) == [("a", -1)]


def test_late_needs_an_aggregation():
    builder = StreamsBuilder()
    builder.stream(orders).group_by_key().windowed_by(TimeWindows.of(SECOND)).late("late-orders").to(lost)

    with pytest.raises(TopologyError, match="'late-orders' has no aggregation"):
        builder.build()


def note_of(record):
    note = DropNote.of(record.headers)
    return (record.key, record.value, note.reason, note.late_ms)


@pytest.mark.parametrize("optimization", ["none", "all"])
@pytest.mark.parametrize("verb", ["join", "left_join", "outer_join"])
def test_records_too_late_for_a_join_of_streams(verb, optimization):
    def topology(builder: StreamsBuilder) -> None:
        joined = getattr(builder.stream(orders), verb)(
            builder.stream(others), lambda one, two: (one or 0) + (two or 0), JoinWindows.of(SECOND)
        )
        joined.to(out)
        joined.late().to(lost)

    driver = TopologyTestDriver(topology, topology_optimization=optimization)
    for topic in (orders, others):
        driver.pipe(topic, 1, key="a", timestamp_ms=900_000)
        driver.pipe(topic, 7, key="a", timestamp_ms=600_000)

    # The window of the join is 2 s long.
    assert [note_of(record) for record in driver.read_records(lost)] == [
        ("a", 7, DropReason.EXPIRED, 298_000),
        ("a", 7, DropReason.EXPIRED, 298_000),
    ]
    assert {(drop.reason, drop.count) for drop in driver.drops()} == {(DropReason.EXPIRED, 1)}


def test_a_record_that_the_other_side_does_not_find_is_late_before_its_segment_expires():
    """The stores keep two seconds: after 5,000 a record at 3,000 is not found, and one at 3,001 is."""

    def topology(builder: StreamsBuilder) -> None:
        joined = builder.stream(orders).left_join(
            builder.stream(others), lambda one, two: one + (two or 0), JoinWindows.of(SECOND)
        )
        joined.to(out)
        joined.late().to(lost)

    driver = TopologyTestDriver(topology)
    driver.pipe(orders, 0, key="z", timestamp_ms=5_000)
    for time_ms in (3_000, 3_001):
        driver.pipe(orders, 1, key=str(time_ms), timestamp_ms=time_ms)
        driver.pipe(others, 7, key=str(time_ms), timestamp_ms=time_ms)

    assert driver.read(out) == [("3000", 1), ("3001", 1), ("3001", 8)]
    assert [note_of(record) for record in driver.read_records(lost)] == [("3000", 1, DropReason.EXPIRED, 0)]
    assert [(drop.reason, drop.count) for drop in driver.drops()] == [(DropReason.EXPIRED, 1)]
    # As in Kafka Streams, which counts what its segments drop.
    assert driver.metric("dropped-records") == 0


def test_all_that_a_join_of_streams_drops():
    def topology(builder: StreamsBuilder) -> None:
        one, two = builder.stream(orders), builder.stream(others)
        joined = one.join(two, lambda one, two: one + two, JoinWindows.of(SECOND))
        joined.to(out)
        joined.dropped().to(lost)

    driver = TopologyTestDriver(topology)
    driver.pipe(orders, 1, timestamp_ms=1)
    driver.pipe(others, None, key="a", timestamp_ms=1)

    assert [note_of(record) for record in driver.read_records(lost)] == [
        (None, 1, DropReason.NULL_KEY, None),
        ("a", None, DropReason.NULL_VALUE, None),
    ]


def test_what_a_join_with_a_table_drops():
    def topology(builder: StreamsBuilder) -> None:
        joined = builder.stream(orders).join(builder.table(others), lambda one, two: one + two)
        joined.to(out)
        joined.dropped().to(lost)
        with pytest.raises(TopologyError, match="only a join of two streams drops late records"):
            joined.late()

    driver = TopologyTestDriver(topology)
    driver.pipe(orders, 1, timestamp_ms=1)
    driver.pipe(orders, 2, key="a", timestamp_ms=1)

    assert [note_of(record)[1:3] for record in driver.read_records(lost)] == [
        (1, DropReason.NULL_KEY),
        (2, DropReason.UNJOINED),
    ]


def reference(key: str, value: int) -> str | None:
    return str(value) if value else None


def test_rows_without_a_foreign_key():
    def topology(builder: StreamsBuilder) -> None:
        left, right = builder.table(orders), builder.table(others)
        joined = left.join(
            right, lambda one, two: one + two, foreign_key=lambda key, value: str(value) if value else None
        )
        joined.to_stream(tombstones=False).to(out)
        joined.dropped().to(lost)
        with pytest.raises(TopologyError, match="only tables of topics and streams, joins and group_by drop rows"):
            left.filter(lambda key, value: True).dropped()

    driver = TopologyTestDriver(topology)
    driver.pipe(orders, 0, key="a", timestamp_ms=1)

    assert [note_of(record)[:3] for record in driver.read_records(lost)] == [("a", 0, DropReason.NULL_FOREIGN_KEY)]


def test_what_a_grouped_stream_drops():
    def topology(builder: StreamsBuilder) -> None:
        grouped = builder.stream(orders).group_by_key()
        grouped.dropped().to(lost)
        grouped.count().to_stream().to(out)

    driver = TopologyTestDriver(topology)
    driver.pipe(orders, 5, timestamp_ms=1)
    driver.pipe(orders, None, key="a", timestamp_ms=1)
    driver.pipe(orders, 5, key="a", timestamp_ms=1)

    assert driver.read(lost) == [(None, 5), ("a", None)]
    assert driver.read(out) == [("a", 1)]


def test_a_record_that_was_not_dropped_has_no_note():
    assert DropNote.of((("trace", b"1"),)) is None
    note = DropNote(DropReason.LATE, "count", 5, 10, Window(0, 5))
    assert DropNote.of(note.headers()) == note


@pytest.mark.parametrize("partitions", [1, 3])
def test_duplicates(partitions):
    def topology(builder: StreamsBuilder) -> None:
        once = builder.stream(orders).deduplicate(by=lambda key, value: value, within=SECOND)
        once.to(out)
        once.dropped().to(lost)

    driver = TopologyTestDriver(topology, partitions=partitions)
    driver.pipe(orders, 5, key="a", timestamp_ms=1)
    driver.pipe(orders, 5, key="a", timestamp_ms=2, headers=(("trace", b"1"),))
    driver.pipe(orders, 6, key="a", timestamp_ms=3)

    (record,) = driver.read_records(lost)
    assert note_of(record) == ("a", 5, DropReason.DUPLICATE, None)
    assert (record.timestamp_ms, record.headers[0]) == (2, ("trace", b"1"))
    assert driver.read(out) == [("a", 5), ("a", 6)]


def test_duplicates_of_a_stream_whose_key_was_changed_or_that_has_none():
    texts, lost_texts = Topic("texts", value=str), Topic("lost-texts", value=str)

    def topology(builder: StreamsBuilder) -> None:
        rekeyed = builder.stream(orders).select_key(lambda key, value: "all").deduplicate(within=SECOND)
        rekeyed.to(out)
        rekeyed.dropped("again").to(lost)
        builder.stream(texts).deduplicate(by=lambda _, text: text, within=SECOND).dropped().to(lost_texts)

    driver = TopologyTestDriver(topology)
    for key in ("a", "b"):
        driver.pipe(orders, 5, key=key, timestamp_ms=1)
        driver.pipe(texts, "x", timestamp_ms=1)

    assert driver.read(lost) == [("all", 5)]
    assert driver.read(lost_texts) == [(None, "x")]


@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_what_a_join_with_the_latest_record_drops(direction):
    def topology(builder: StreamsBuilder) -> None:
        joined = builder.stream(orders).join_latest(
            builder.stream(others), lambda one, two: one + two, tolerance=SECOND, direction=direction
        )
        joined.to(out)
        joined.late().to(Topic("late", key=str, value=int))
        joined.dropped().to(lost)

    driver = TopologyTestDriver(topology)
    driver.pipe(orders, 1, timestamp_ms=1)
    driver.pipe(others, None, key="a", timestamp_ms=1)
    driver.pipe(orders, 2, key="a", timestamp_ms=1)
    driver.pipe(others, 0, key="x", timestamp_ms=9000)
    for topic in (orders, others):
        driver.pipe(topic, 7, key="a", timestamp_ms=600)

    assert driver.read(out) == []
    assert [note_of(record) for record in driver.read_records(lost)] == [
        (None, 1, DropReason.NULL_KEY, None),
        ("a", None, DropReason.NULL_VALUE, None),
        ("a", 2, DropReason.UNJOINED, None),
        ("a", 7, DropReason.LATE, 7400),
        ("a", 7, DropReason.LATE, 7400),
    ]
    assert driver.read(Topic("late", key=str, value=int)) == [("a", 7), ("a", 7)]
    assert sum(drop.count for drop in driver.drops()) == 5


def test_a_left_join_with_the_latest_record_drops_no_unmatched_record():
    def topology(builder: StreamsBuilder) -> None:
        joined = builder.stream(orders).left_join_latest(
            builder.stream(others), lambda one, two: one + (two or 0), tolerance=SECOND
        )
        joined.to(out)
        joined.dropped().to(lost)

    driver = TopologyTestDriver(topology)
    driver.pipe(orders, 2, key="a", timestamp_ms=1)
    driver.pipe(orders, None, key="a", timestamp_ms=2)

    assert driver.read(out) == [("a", 2)]
    assert driver.read(lost) == [("a", None)]


@pytest.mark.parametrize("operator", ["deduplicate", "join_latest"])
def test_an_unused_side_output_of_deduplicate_and_join_latest_has_no_node(operator):
    builder = StreamsBuilder()
    stream = builder.stream(orders)
    if operator == "deduplicate":
        stream.deduplicate(within=SECOND).to(out)
    else:
        stream.join_latest(builder.stream(others), lambda one, two: one, tolerance=SECOND).to(out)

    assert not any("DROPPED" in name for name in builder.build().nodes)


@pytest.mark.parametrize("options", [{"ttl": SECOND}, {"history": SECOND}])
def test_records_of_a_grouped_stream_that_are_older_than_the_store_keeps(options):
    def topology(builder: StreamsBuilder) -> None:
        grouped = builder.stream(orders).group_by_key()
        grouped.dropped().to(lost)
        grouped.count("counts", **options).to_stream().to(out)

    driver = TopologyTestDriver(topology)
    driver.pipe(orders, 5, key="z", timestamp_ms=900_000)
    driver.pipe(orders, 7, key="a", timestamp_ms=1)

    assert driver.read(out) == [("z", 1)]
    assert [note_of(record)[:3] for record in driver.read_records(lost)] == [("a", 7, DropReason.EXPIRED)]
    assert [(drop.reason, drop.count) for drop in driver.drops()] == [(DropReason.EXPIRED, 1)]


def rekeyed(builder: StreamsBuilder):
    """A stream whose keys are texts of the values, and None for 0."""
    return builder.stream(orders).select_key(lambda key, value: reference(key, value))


def sessions(builder: StreamsBuilder, stream):
    windowed = stream.group_by_key(key=str, value=int).windowed_by(SessionWindows.of(SECOND))
    windowed.count().to_stream(lambda windowed, count: windowed.key).to(out)
    return windowed


def cogrouped(builder: StreamsBuilder, stream):
    grouped = stream.group_by_key(key=str, value=int)
    both = grouped.cogroup(lambda key, value, total: total + value, value=int)
    both.aggregate(lambda: 0).to_stream().to(out)
    return both


def counted(builder: StreamsBuilder, stream):
    grouped = stream.group_by_key(key=str, value=int)
    grouped.count().to_stream().to(out)
    return grouped


def joined(builder: StreamsBuilder, stream):
    both = stream.join(builder.stream(others), lambda one, two: one + two, JoinWindows.of(SECOND))
    both.to(out)
    return both


def joined_with_table(builder: StreamsBuilder, stream):
    both = stream.join(builder.table(others), lambda one, two: one + two)
    both.to(out)
    return both


def joined_with_latest(builder: StreamsBuilder, stream):
    both = stream.join_latest(builder.stream(others), lambda one, two: one + two, tolerance=SECOND)
    both.to(out)
    return both


def stored(builder: StreamsBuilder, stream):
    table = stream.to_table(key=str, value=int)
    table.to_stream().to(out)
    return table


@pytest.mark.case(5)
@pytest.mark.parametrize("optimization", ["none", "all"])
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(
    "downstream", [counted, sessions, cogrouped, joined, joined_with_table, joined_with_latest, stored]
)
def test_records_without_a_key_pass_a_repartition_topic_if_their_operator_has_a_stream_of_them(
    downstream, partitions, optimization
):
    """The results are those without ``dropped()``, whose null keys are dropped upstream of the topic."""
    results = []
    for has_dropped in (False, True):

        def topology(builder: StreamsBuilder, has_dropped: bool = has_dropped) -> None:
            operator = downstream(builder, rekeyed(builder))
            if has_dropped:
                operator.dropped("without-key").to(lost)

        driver = TopologyTestDriver(topology, partitions=partitions, topology_optimization=optimization)
        if downstream in (joined, joined_with_table, joined_with_latest):
            driver.pipe(others, 10, key="5", timestamp_ms=1)
        for number in range(20):
            driver.pipe(orders, number % 4 * 5, key="a", timestamp_ms=number * 400)
        if downstream is joined_with_latest:
            driver.pipe(others, 10, key="5", timestamp_ms=9000)
        results.append(sorted(driver.read(out)))
        if has_dropped:
            records = [note_of(record) for record in driver.read_records(lost)]
            assert [record for record in records if record[2] is DropReason.NULL_KEY] == [
                (None, 0, DropReason.NULL_KEY, None)
            ] * 5
        assert sum(drop.count for drop in driver.drops() if drop.reason == DropReason.NULL_KEY) == 5

    assert results[0] == results[1] != []


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("source", ["topic", "stream"])
def test_records_without_a_key_are_in_no_table(source, is_stored):
    def topology(builder: StreamsBuilder) -> None:
        store = {"store": "rows"} if is_stored else {}
        table = builder.table(orders, **store) if source == "topic" else builder.stream(orders).to_table(**store)
        table.to_stream().to(out)
        table.dropped().to(lost)

    driver = TopologyTestDriver(topology)
    driver.pipe(orders, 5, timestamp_ms=1, headers=(("trace", b"1"),))
    driver.pipe(orders, 6, key="a", timestamp_ms=2)

    (record,) = driver.read_records(lost)
    assert note_of(record) == (None, 5, DropReason.NULL_KEY, None)
    assert record.headers[0] == ("trace", b"1")
    assert driver.read(out) == [("a", 6)]


@pytest.mark.parametrize("options", [{"ttl": SECOND}, {"history": SECOND}])
def test_records_of_a_table_that_are_older_than_its_store_keeps(options):
    def topology(builder: StreamsBuilder) -> None:
        table = builder.table(orders, name="rows", **options)
        table.to_stream(tombstones=False).to(out)
        table.dropped().to(lost)

    driver = TopologyTestDriver(topology)
    driver.pipe(orders, 5, key="z", timestamp_ms=900_000)
    driver.pipe(orders, 7, key="a", timestamp_ms=1)

    assert driver.read(out) == [("z", 5)]
    assert [note_of(record)[:3] for record in driver.read_records(lost)] == [("a", 7, DropReason.EXPIRED)]
    assert [(drop.reason, drop.count) for drop in driver.drops()] == [(DropReason.EXPIRED, 1)]


def test_rows_of_versioned_tables_that_are_out_of_order_for_a_join():
    def topology(builder: StreamsBuilder) -> None:
        left, right = (builder.table(topic, topic.name, history=timedelta(minutes=1)) for topic in (orders, others))
        both = left.join(right, lambda one, two: one + two)
        both.to_stream().to(out)
        both.dropped().to(lost)

    driver = TopologyTestDriver(topology)
    for topic, value in ((orders, 1), (others, 10)):
        driver.pipe(topic, value, key="a", timestamp_ms=2000)
        driver.pipe(topic, value + 1, key="a", timestamp_ms=1000)

    assert driver.read(out) == [("a", 11)]
    assert [note_of(record)[:3] for record in driver.read_records(lost)] == [
        ("a", 2, DropReason.OUT_OF_ORDER),
        ("a", 11, DropReason.OUT_OF_ORDER),
    ]


def test_rows_that_are_in_no_group():
    def topology(builder: StreamsBuilder) -> None:
        table = builder.table(orders, name="rows", history=timedelta(minutes=1))
        grouped = table.group_by(lambda key, value: (reference(key, value), None if value == 7 else value), key=str)
        grouped.count("groups").to_stream().to(out)
        grouped.dropped().to(lost)

    driver = TopologyTestDriver(topology)
    for key, value, time_ms in (("a", 0, 10), ("b", 7, 11), ("c", 5, 12), ("c", 0, 13), ("c", 9, 1), ("a", None, 14)):
        driver.pipe(orders, value, key=key, timestamp_ms=time_ms)

    assert driver.read(out) == [("5", 1), ("5", 0)]
    records = [note_of(record)[:3] for record in driver.read_records(lost)]
    assert records == [
        ("a", 0, DropReason.NULL_KEY),
        ("b", 7, DropReason.NULL_VALUE),
        ("c", 0, DropReason.NULL_KEY),
        ("c", 9, DropReason.OUT_OF_ORDER),
    ]
    assert {(drop.reason, drop.count) for drop in driver.drops()} == {
        (DropReason.NULL_KEY, 2),
        (DropReason.NULL_VALUE, 1),
        (DropReason.OUT_OF_ORDER, 1),
    }
    assert driver.metric("dropped-records") == 0
