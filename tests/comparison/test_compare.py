"""What differs between two replays of the same history."""

import json
from datetime import timedelta
from typing import Any

import pytest
from attrs import frozen

from streams import (
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Topic,
    session_windowed,
    time_windowed,
)
from streams.comparison import (
    LAST,
    ONLY_NEW,
    ONLY_OLD,
    ORDER,
    RETYPED,
    TIMES,
    UPDATES,
    Comparison,
    KeyBuckets,
    Level,
    compare,
    fingerprint,
    paired_stores,
)
from streams.core.blocks.records import Block, Window, Windowed
from streams.core.event_time.time_texts import time_text
from streams.core.serdes.display import key_text, value_text
from streams.core.serdes.serdes import LONG, count_windowed
from streams.replay import replay
from streams.replay.calls.shown import store_key_reader
from streams.state import KEY_VALUE, StoreSpec

clicks = Topic("clicks", key=str, value=int)
totals = Topic("totals", key=str, value=int)


@pytest.fixture
def compared(tmp_path):
    """Replay records (key, value, time) through two topologies, and compare."""
    opened = []

    def run(old: Any, new: Any, *records: tuple[Any, Any, int], limit: int = 5, **options: Any) -> Comparison:
        file = tmp_path / "clicks.records.jsonl"
        rows = [json.dumps({"key": key, "value": value, "timestamp": time}) for key, value, time in records]
        file.write_text("".join(f"{row}\n" for row in rows))
        for topology in (old, new):
            opened.append(
                replay(topology, {clicks: file}, application_id="app", executor="local", processes=1, **options)
            )
        return compare(opened[-2], opened[-1], limit=limit)

    yield run
    for result in opened:
        result.close()


def mapped(function: Any, to: Topic[Any, Any] = totals):
    """Return a topology that makes a value of each click; None drops it."""

    def topology(builder: StreamsBuilder) -> None:
        made = builder.stream(clicks).map_values(function)
        made.filter(lambda key, value: value is not None).to(to)

    return topology


def summed(add: Any = lambda key, value, total: total + value, value: Any = int, initial: Any = int):
    def topology(builder: StreamsBuilder) -> None:
        table = builder.stream(clicks).group_by_key().aggregate(initial, add, name="sums", value=value)
        table.to_stream().map_values(lambda total: int(total)).to(totals)

    return topology


THREE = [("ann", 1, 0), ("bob", 2, 1000), ("ann", 3, 2000)]


# --- topics -------------------------------------------------------------------------------


def test_the_same_topology_gives_no_difference(compared):
    found = compared(summed(), summed(), *THREE)

    assert found.is_same
    assert [(topic.name, topic.counts, topic.examples) for topic in found.topics] == [("totals", (3, 3), ())]
    assert [(store.old, store.new, store.counts) for store in found.stores] == [("sums", "sums", (2, 2))]
    assert found.take_over.verdict == "can take over"


@pytest.mark.slow
def test_first_record_and_last_value_of_a_key_that_differs_are_told(compared):
    """The second record of ann, third of the topic, is another one."""
    found = compared(mapped(lambda value: value), mapped(lambda value: 30 if value == 3 else value), *THREE)

    [topic] = found.topics
    assert (topic.counts, topic.keys, topic.keys_in_all) == ((3, 3), {LAST: 1}, 2)
    [example] = topic.examples
    assert (example.key, example.last, example.counts) == ("ann", (3, 30), (2, 2))
    assert example.old is not None
    assert (example.old.partition, example.old.number, example.old.timestamp_ms, example.old.value) == (0, 2, 2000, 3)
    assert example.new is not None
    assert (example.new.number, example.new.value) == (2, 30)


@pytest.mark.slow
def test_keys_of_one_version_only(compared):
    found = compared(
        mapped(lambda value: None if value == 2 else value), mapped(lambda value: value if value == 2 else None), *THREE
    )

    [topic] = found.topics
    assert topic.keys == {ONLY_OLD: 1, ONLY_NEW: 1}
    assert [(item.key, item.kind, item.counts) for item in topic.examples] == [
        ("ann", ONLY_OLD, (2, 0)),
        ("bob", ONLY_NEW, (0, 1)),
    ]
    assert topic.examples[0].new is None


@pytest.mark.slow
def test_other_updates_before_the_same_last_value_are_less_than_another_one(compared):
    found = compared(mapped(lambda value: value), mapped(lambda value: 10 if value == 1 else value), *THREE)

    assert found.topics[0].keys == {UPDATES: 1}
    dropped = compared(mapped(lambda value: value), mapped(lambda value: None if value == 1 else value), *THREE)
    assert dropped.topics[0].keys == {UPDATES: 1}
    assert dropped.topics[0].examples[0].counts == (2, 1)


def test_a_last_record_that_is_missing_is_another_last_value(compared):
    found = compared(mapped(lambda value: value), mapped(lambda value: None if value == 3 else value), *THREE)

    [example] = found.topics[0].examples
    assert (example.kind, example.new, example.last) == (LAST, None, (3, 1))


@pytest.mark.slow
def test_the_same_values_at_other_times(compared):
    def later(builder: StreamsBuilder) -> None:
        other = Topic("clicks", key=str, value=int, timestamp=lambda value: value)
        builder.stream(other).to(totals)

    found = compared(mapped(lambda value: value), later, *THREE)

    assert found.topics[0].keys == {TIMES: 2}


@pytest.mark.slow
def test_the_same_records_of_a_key_in_another_order(compared):
    """Three values, of which the first two have changed places."""
    old, new = (
        mapped(lambda value: value),
        mapped(lambda value: {1: 2, 2: 1}.get(value, value)),
    )
    found = compared(old, new, ("ann", 1, 5), ("ann", 2, 5), ("ann", 3, 5))

    assert found.topics[0].keys == {ORDER: 1}


@pytest.mark.slow
def test_another_order_between_keys_only_is_told_as_such(compared):
    def doubled(first: Any, second: Any):
        def topology(builder: StreamsBuilder) -> None:
            stream = builder.stream(clicks)
            stream.flat_map(lambda key, value: [(first(key), value), (second(key), value)]).to(totals)

        return topology

    old, new = doubled(lambda key: key, lambda key: key + "2"), doubled(lambda key: key + "2", lambda key: key)
    found = compared(old, new, *THREE)

    [topic] = found.topics
    assert (topic.is_order_only, topic.keys, topic.is_same, found.is_same) == (True, {}, False, False)


@pytest.mark.slow
def test_records_without_key_are_compared_as_a_heap(compared):
    def keyless(change: Any):
        def topology(builder: StreamsBuilder) -> None:
            builder.stream(clicks).map(lambda key, value: (None, change(value))).to(Topic("totals", value=int))

        return topology

    found = compared(keyless(lambda value: value), keyless(lambda value: value if value != 2 else 9), *THREE)

    [topic] = found.topics
    assert (topic.keys, topic.keys_in_all) == ({ONLY_OLD: 1, ONLY_NEW: 1}, 0)
    assert [(item.old and item.old.value, item.new and item.new.value) for item in topic.examples] == [
        (2, None),
        (None, 9),
    ]


@pytest.mark.slow
def test_topics_that_one_version_writes(compared):
    found = compared(
        mapped(lambda value: value), mapped(lambda value: value, Topic("others", key=str, value=int)), *THREE
    )

    assert {topic.name: (topic.counts, topic.is_same) for topic in found.topics} == {
        "others": ((None, 3), False),
        "totals": ((3, None), False),
    }


@pytest.mark.slow
def test_values_written_as_another_type_are_compared_by_what_they_say(compared):
    new = mapped(lambda value: float(value if value != 3 else 4), Topic("totals", key=str, value=float))
    found = compared(mapped(lambda value: value), new, *THREE)

    [topic] = found.topics
    assert topic.notes == ("values: int -> float",)
    assert topic.keys == {LAST: 1, RETYPED: 1}


@pytest.mark.slow
def test_examples_are_the_first_of_the_gravest_and_no_more_than_asked_for(compared):
    records = [(f"k{number:02}", number, number) for number in range(20)]
    found = compared(
        mapped(lambda value: value),
        mapped(lambda value: None if value == 3 else value + (value > 5)),
        *records,
        limit=3,
    )

    [topic] = found.topics
    assert topic.keys == {LAST: 14, ONLY_OLD: 1}
    assert [item.key for item in topic.examples] == ["k06", "k07", "k08"]


def test_windows_are_told_with_their_times(compared):
    wide = Topic("totals", key=time_windowed(str, timedelta(minutes=1)), value=int)

    def counted(grace: int):
        def topology(builder: StreamsBuilder) -> None:
            windows = TimeWindows.of(timedelta(minutes=1), grace=timedelta(seconds=grace))
            builder.stream(clicks).group_by_key().windowed_by(windows).count("counts").to_stream().to(wide)

        return topology

    found = compared(counted(0), counted(60), ("ann", 1, 0), ("ann", 1, 70_000), ("ann", 1, 30_000))

    [topic] = found.topics
    [example] = topic.examples
    assert (example.key, example.last) == ("ann@[1970-01-01T00:00:00Z, 1970-01-01T00:01:00Z)", (1, 2))
    [store] = found.stores
    assert [(entry.key, entry.old, entry.new) for entry in store.examples] == [
        ("ann@[1970-01-01T00:00:00Z, 1970-01-01T00:01:00Z)", 1, 2)
    ]
    assert found.take_over.level is Level.BUT


@pytest.mark.slow
def test_partition_counts_may_differ(compared):
    def into(partitions: int):
        return mapped(lambda value: value, Topic("totals", key=str, value=int, partitions=partitions))

    found = compared(into(1), into(3), *THREE)

    [topic] = found.topics
    assert topic.notes == ("partitions: 1 -> 3",)
    assert topic.keys == {}


@pytest.mark.slow
def test_many_records_are_compared_in_files():
    with KeyBuckets(1_000_000) as buckets:
        for side in (0, 1):
            for first in range(0, 20_000, 5000):
                keys = [str(number % 1000).encode() for number in range(first, first + 5000)]
                values = [str(number + (side and number == 12_345)).encode() for number in range(first, first + 5000)]
                buckets.add(side, 3, Block(keys, values, [first] * 5000, None, range(5000)))
        found = {key: (left, right) for key, left, right in buckets.by_key()}

    assert len(found) == 1000
    assert [key for key, (left, right) in found.items() if left != right] == [b"345"]
    assert [place for place, _ in found[b"7"][0]] == [(3, number) for number in range(7, 20_000, 1000)]


# --- stores -------------------------------------------------------------------------------


def test_entries_are_counted_that_either_version_has(compared):
    def shouted(builder: StreamsBuilder) -> None:
        clicks_by_name = builder.stream(clicks).group_by(
            lambda key, value: key if key == "bob" else key.upper(), key=str
        )
        clicks_by_name.aggregate(int, lambda key, value, total: total + value, name="sums")

    def named(builder: StreamsBuilder) -> None:
        builder.stream(clicks).group_by(lambda key, value: key, key=str).aggregate(
            int, lambda key, value, total: total + value, name="sums"
        )

    found = compared(named, shouted, *THREE)

    assert any("2 of 3 entries are not what NEW" in finding.says for finding in found.take_over.findings)


@pytest.mark.slow
def test_entries_of_stores_are_compared(compared):
    new = summed(lambda key, value, total: total + (value if key == "ann" else 2 * value))
    found = compared(summed(), new, *THREE)

    [store] = found.stores
    assert (store.counts, store.entries) == ((2, 2), {LAST: 1})
    assert [(entry.key, entry.old, entry.new) for entry in store.examples] == [("bob", 2, 4)]
    assert "1 of 2 entries are not what NEW would have made" in found.take_over.findings[0].says
    assert "the functions of its operator have changed" in found.take_over.findings[0].says


@pytest.mark.slow
def test_shifted_stores_are_compared_with_their_counterparts(compared):
    def numbered(filters: int):
        def topology(builder: StreamsBuilder) -> None:
            stream = builder.stream(clicks)
            for _ in range(filters):
                stream = stream.filter(lambda key, value: True)
            stream.group_by_key().count()
            stream.group_by_key().reduce(lambda old, new: old + new)

        return topology

    found = compared(numbered(0), numbered(2), *THREE)

    assert [store.old != store.new and store.entries == {} for store in found.stores] == [True, True]


@pytest.mark.slow
def test_sessions_are_told_with_both_ends(compared):
    sessions = Topic("totals", key=session_windowed(str), value=int)

    def counted(gap: int):
        def topology(builder: StreamsBuilder) -> None:
            windows = SessionWindows.of(timedelta(seconds=gap), grace=timedelta(seconds=60))
            builder.stream(clicks).group_by_key().windowed_by(windows).count("visits").to_stream().to(sessions)

        return topology

    found = compared(counted(1), counted(5), ("ann", 1, 0), ("ann", 1, 3000))

    [store] = found.stores
    assert store.entries == {ONLY_OLD: 2, ONLY_NEW: 1}
    assert store.examples[-1].key == "ann@[1970-01-01T00:00:00Z, 1970-01-01T00:00:03Z]"
    assert found.topics[0].examples[-1].key == "ann@[1970-01-01T00:00:00Z, 1970-01-01T00:00:03Z]"


@pytest.mark.slow
def test_versions_of_a_key_are_entries(compared):
    def kept(change: Any):
        def topology(builder: StreamsBuilder) -> None:
            builder.stream(clicks).map_values(change).group_by_key().reduce(
                lambda old, new: new, name="latest", history=timedelta(hours=1)
            )

        return topology

    found = compared(kept(lambda value: value), kept(lambda value: value if value != 1 else 7), *THREE)

    [store] = found.stores
    assert (store.counts, store.entries) == ((3, 3), {LAST: 1})


@frozen
class Total:
    cents: int


@frozen
class Noted:
    cents: int
    note: str = ""


@frozen
class Strict:
    cents: int
    note: str


@pytest.mark.case
@pytest.mark.parametrize(("form", "level"), [(Noted, Level.NOTE), (Strict, Level.CANNOT)])
def test_values_of_a_changed_class_are_tried(compared, form, level):
    """A field with a default can be read from what OLD wrote, one without cannot."""
    more = () if form is Noted else ("",)

    def topology(kind: Any, *rest: Any):
        def made(builder: StreamsBuilder) -> None:
            builder.stream(clicks).group_by_key().aggregate(
                lambda: kind(0, *rest),
                lambda key, value, total: kind(total.cents + value, *rest),
                name="sums",
                value=kind,
            )

        return made

    found = compared(topology(Total), topology(form, *more), *THREE)

    assert found.stores[0].notes == (f"values: Total -> {form.__name__}",)
    told = next(item for item in found.take_over.findings if "values are Total in OLD" in item.says)
    assert told.level is level
    assert ("read all 2 of OLD's" if level is Level.NOTE else "'note' is new and has no default value") in told.says


@pytest.mark.slow
def test_types_that_lambdas_made_are_known_after_a_replay(compared):
    def untyped(initial: Any):
        def topology(builder: StreamsBuilder) -> None:
            builder.stream(clicks).group_by_key().aggregate(
                lambda: initial, lambda key, value, total: total + value, name="sums"
            )

        return topology

    assert compared(untyped(0), untyped(0), *THREE).take_over.is_clean
    found = compared(untyped(0), untyped(0.5), *THREE)
    assert "were written as int, NEW writes float" in found.take_over.findings[0].says
    assert found.take_over.level is Level.CANNOT


# --- pairs and words ----------------------------------------------------------------------


@pytest.mark.slow
def test_functions_are_the_same_if_they_do_the_same():
    def add(step):
        return lambda value: value + step

    assert fingerprint(add(1)) == fingerprint(add(1))
    assert fingerprint(add(1)) != fingerprint(add(2))
    assert fingerprint(lambda value: value + 1) != fingerprint(lambda value: value - 1)


@pytest.mark.slow
def test_stores_are_paired_by_what_their_operators_do():
    """A count was put in front of two sums of different things, which change places too."""

    def old(builder: StreamsBuilder) -> None:
        grouped = builder.stream(clicks).group_by_key()
        grouped.aggregate(int, lambda key, value, total: total + value, value=int)
        grouped.aggregate(int, lambda key, value, total: max(total, value), value=int)

    def new(builder: StreamsBuilder) -> None:
        grouped = builder.stream(clicks).filter(lambda key, value: value > 0).group_by_key()
        grouped.count()
        grouped.aggregate(int, lambda key, value, total: max(total, value), value=int)
        grouped.aggregate(int, lambda key, value, total: total + value, value=int)

    from streams.dsl.builder import build_topology

    one, two = build_topology(old), build_topology(new)
    (total, highest), (_, new_highest, new_total) = one.stores, two.stores
    assert paired_stores(one, two) == {total: new_total, highest: new_highest}


def test_words():
    assert time_text(1_767_607_200_000) == "2026-01-05T10:00:00Z"
    assert key_text(("a", 1)) == '["a", 1]'
    numbers = Windowed("a", Window(0, 3))
    assert key_text(numbers) == "a@[1970-01-01T00:00:00Z, 1970-01-01T00:00:00.003Z)"
    assert key_text(numbers, count_windowed(str, 3)) == "a@records[0, 3)"
    spec = StoreSpec("s", KEY_VALUE, count_windowed(str, 3), LONG)
    assert store_key_reader(spec)(count_windowed(str, 3).serialize(numbers)) == "a@records[0, 3)"
    assert value_text({"b": 1, "a": None}) == '{"b": 1, "a": null}'
    assert value_text("\x1b \x9b31m \u202e é \U000e0041") == r'"\u001b \u009b31m \u202e é \udb40\udc41"'
    assert value_text(b"\x00\x01") == '{"$hex": "0001"}'
    assert len(value_text("x" * 1000)) == 120
