"""Each reason for which a record leads to no output is given in words with numbers."""

from datetime import timedelta
from typing import Any

import pytest

from streams import (
    EmitStrategy,
    JoinWindows,
    Processor,
    PunctuationType,
    Record,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topic,
    UnknownTopicError,
    punctuate,
    time_windowed,
    timestamped_key_value_store,
)
from streams.core.blocks.partitioning import partition_for
from streams.core.errors import InputError
from streams.testing import TopologyTestDriver
from streams.why import REASONS, End, Story

orders = Topic("orders", key=str, value=int)
payments = Topic("payments", key=str, value=int)
customers = Topic("customers", key=str, value=str)
out = Topic("out", key=str, value=int)
texts = Topic("texts", key=str, value=str)

SECOND = timedelta(seconds=1)


def ends(story: Story, reason: str) -> list[End]:
    assert not story.outputs, story.text
    assert set(story.reasons) <= set(REASONS)
    found = [end for end in (*story.ends, *story.notes) if end.reason == reason]
    assert found, story.text
    return found


def of(topology: Any, *rows: tuple[Topic[Any, Any], Any, Any, int], **settings: Any) -> TopologyTestDriver:
    driver = TopologyTestDriver(topology, **settings)
    for topic, key, value, time_ms in rows:
        driver.pipe(topic, value, key=key, timestamp_ms=time_ms)
    return driver


def is_large(_: str, amount: int) -> bool:
    return amount > 10


def test_filtered_record_is_named_with_the_condition_and_its_line() -> None:
    driver = of(lambda builder: builder.stream(orders).filter(is_large, name="large").to(out), (orders, "ann", 5, 7))

    (end,) = ends(driver.why("ann", out), "filtered")

    assert end.node == "large"
    assert "the condition of filter 'is_large'" in end.text
    assert "test_reasons.py:" in end.text
    assert end.record is not None
    assert (end.record.topic, end.record.partition, end.record.offset) == ("orders", 0, 0)


def test_record_without_branch_is_filtered() -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).split().branch(is_large).to(out)

    assert "no branch" in ends(of(topology, (orders, "ann", 5, 7)).why("ann"), "filtered")[0].text


def test_input_that_was_dropped_before_it_got_its_key_is_found_by_its_value() -> None:
    rows = Topic("rows", value=dict[str, Any])

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(rows).filter(lambda _, row: row["amount"] > 10)
        stream.group_by(lambda _, row: str(row["user"])).count().to_stream().to(out)

    driver = of(topology, (rows, None, {"user": "ann", "amount": 5}, 7))

    (end,) = ends(driver.why("ann", out), "filtered")
    assert end.record is not None
    assert "'user': 'ann'" in end.record.text


def joined(builder: StreamsBuilder) -> None:
    windows = JoinWindows.of(5 * SECOND)
    builder.stream(orders).join(builder.stream(payments), lambda left, right: left + right, windows).to(out)


def test_join_of_streams_names_the_nearest_partner_and_by_how_much_it_misses() -> None:
    driver = of(joined, (orders, "ann", 1, 20_000), (payments, "ann", 2, 40_000), (payments, "ann", 3, 27_000))

    of_order, first, second = ends(driver.why("ann", out), "no partner")

    assert "7,000 ms later: 2,000 ms outside of the window" in of_order.text
    assert "payments-0 offset 1" in of_order.text
    assert of_order.numbers == {"missed_by_ms": 2000, "apart_ms": 7000}
    assert first.numbers["missed_by_ms"] == 15_000
    assert second.numbers == {"missed_by_ms": 2000, "apart_ms": -7000}


def test_join_of_streams_without_any_partner_says_so() -> None:
    (end,) = ends(of(joined, (orders, "ann", 1, 20_000), (payments, "bob", 2, 20_000)).why("ann"), "no partner")
    assert "no record of key 'ann' came on the right side" in end.text


def test_left_join_waits_for_its_window_to_close() -> None:
    def topology(builder: StreamsBuilder) -> None:
        windows = JoinWindows.of(5 * SECOND, grace=SECOND)
        builder.stream(orders).left_join(builder.stream(payments), lambda left, right: left, windows).to(out)

    driver = of(topology, (orders, "ann", 1, 20_000))
    (end,) = ends(driver.why("ann"), "window open")
    assert end.numbers == {"closes_ms": 26_000, "stream_time_ms": 20_000}

    driver.pipe(orders, 1, key="bob", timestamp_ms=40_000)
    story = driver.why("ann")
    assert "no partner came until its window had closed" in story.text
    assert story.outputs[0].value == 1


def with_table(builder: StreamsBuilder) -> None:
    builder.stream(orders).join(builder.table(customers, name="names"), lambda amount, name: amount).to(out)


def test_join_with_a_table_says_that_the_row_came_later() -> None:
    driver = of(with_table, (orders, "ann", 1, 10), (customers, "ann", "Ann", 15))

    (end,) = ends(driver.why("ann", out), "no partner")

    assert "store names had no row 'ann' when it came: its row came after it, customers-0 offset 0" in end.text
    assert end.numbers == {"missed_by_ms": 5}


def test_records_of_one_key_in_two_partitions_are_named_with_their_partitioner() -> None:
    driver = TopologyTestDriver(with_table, partitions=3)
    driver.pipe(customers, "Ann", key="ann", timestamp_ms=1)
    at = driver.read_partitions(customers).popitem()[0]
    driver.pipe(orders, 1, key="ann", timestamp_ms=2, partition=(at + 1) % 3)

    (end,) = ends(driver.why("ann", out), "another partition")

    assert end.numbers == {"partition": (at + 1) % 3, "other_partition": at}
    assert f"puts the key into partition {at} of 3 of orders, so orders-{(at + 1) % 3} offset 0 was" in end.text

    driver.pipe(orders, 1, key="ann", timestamp_ms=3, partition=(at + 2) % 3)
    note = next(note for note in driver.why("ann", out).notes if note.reason == "another partition")
    assert (
        f"records of key 'ann' are in partitions {', '.join(str(n) for n in range(3) if n != at)} of orders"
        in note.text
    )
    assert "another partitioner" in note.text


def windowed(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of(10 * SECOND, grace=2 * SECOND)
    builder.stream(orders).group_by_key().windowed_by(windows).count("counts").to_stream(lambda key, _: key.key).to(out)


def test_late_record_is_named_with_stream_time_and_task() -> None:
    driver = of(windowed, (orders, "bob", 1, 13_000), (orders, "ann", 1, 4_000))

    (end,) = ends(driver.why("ann", out), "late")

    assert end.numbers == {
        "late_ms": 9_000, "stream_time_ms": 13_000, "closed_ms": 12_000, "grace_ms": 2_000, "missed_by_ms": 1_000,
    }  # fmt: skip
    assert "late by 9,000 ms behind stream time 1970-01-01T00:00:13Z of task 0_0" in end.text


def test_late_record_of_a_session_is_named() -> None:
    def topology(builder: StreamsBuilder) -> None:
        grouped = builder.stream(orders).group_by_key().windowed_by(SessionWindows.of(SECOND, grace=SECOND))
        grouped.count("sessions").to_stream(lambda key, _: key.key).to(out)

    (end,) = ends(of(topology, (orders, "bob", 1, 9_000), (orders, "ann", 1, 4_000)).why("ann"), "late")
    assert end.numbers["closed_ms"] == 6_000


def test_null_key_is_named() -> None:
    driver = of(
        lambda builder: (
            builder.stream(orders).select_key(lambda key, _: None).group_by_key().count().to_stream().to(out)
        ),
        (orders, "ann", 1, 0),
    )
    assert "its key is null" in ends(driver.why("ann"), "null key")[0].text


def test_null_key_of_an_aggregate_is_named() -> None:
    driver = of(lambda builder: builder.stream(orders).group_by_key().count().to_stream().to(out))
    driver.pipe(orders, 1, timestamp_ms=1)
    driver.pipe(orders, 1, key="ann", timestamp_ms=1)
    (end,) = ends(driver.why(None, out), "null key")
    assert "its key is null" in end.text


def test_window_is_open_until_stream_time_is_past_its_grace() -> None:
    def topology(builder: StreamsBuilder) -> None:
        windows = TimeWindows.of(10 * SECOND, grace=2 * SECOND)
        grouped = builder.stream(orders).group_by_key().windowed_by(windows)
        counted = grouped.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count("counts")
        counted.to_stream(lambda key, _: key.key).to(out)

    driver = of(topology, (orders, "ann", 1, 3_000))

    (end,) = ends(driver.why("ann"), "window open")
    assert end.numbers == {"closes_ms": 12_000, "stream_time_ms": 3_000}
    assert "9,000 ms to go" in end.text

    driver.pipe(orders, 1, key="bob", timestamp_ms=12_500)
    assert "1 record of key 'ann' in window 1970-01-01T00:00:00Z to 1970-01-01T00:00:10Z" in driver.why("ann").text


def test_suppressed_update_is_named_with_its_time() -> None:
    def topology(builder: StreamsBuilder) -> None:
        table = builder.stream(orders).group_by_key().count("counts")
        table.suppress(Suppressed.until_time_limit(5 * SECOND)).to_stream().to(out)

    driver = of(topology, (orders, "ann", 1, 1_000), (orders, "ann", 1, 2_000))

    (end,) = ends(driver.why("ann"), "suppressed")

    assert end.numbers == {"due_ms": 6_000, "stream_time_ms": 2_000}
    assert end.record is not None
    assert end.record.value == 2


def test_update_that_releases_another_key_is_itself_suppressed() -> None:
    def topology(builder: StreamsBuilder) -> None:
        table = builder.stream(orders).group_by_key().count("counts")
        table.suppress(Suppressed.until_time_limit(5 * SECOND)).to_stream().to(out)

    driver = of(topology, (orders, "bob", 1, 1_000), (orders, "ann", 1, 9_000))

    assert ends(driver.why("ann"), "suppressed")[0].numbers == {"due_ms": 14_000, "stream_time_ms": 9_000}
    assert "buffered until then" in driver.why("bob").text


def test_record_that_a_handler_drops_without_a_dead_letter_is_named_with_the_error() -> None:
    driver = of(
        lambda builder: builder.stream(orders).map_values(lambda amount: 1 << amount).to(out),
        (orders, "ann", 64, 5),
        production_handler="continue",
    )

    (end,) = ends(driver.why("ann", out), "dropped")

    assert "SerializationError" in end.text
    assert "orders-0 at offset 0" in end.text


def test_record_that_cannot_be_written_and_has_a_dead_letter_is_named() -> None:
    driver = of(
        lambda builder: builder.stream(orders).map_values(lambda amount: 1 << amount).to(out),
        (orders, "ann", 64, 5),
        production_handler="continue",
        errors_dead_letter_queue_topic_name="letters",
    )
    (end,) = ends(driver.why("ann", out), "dead letter")
    assert "it was written to topic 'letters'" in end.text


def test_partition_chosen_by_a_partitioner_of_the_topology_is_named_with_it() -> None:
    def elsewhere(topic: str, key: str, value: Any, count: int) -> int:
        return 1

    def topology(builder: StreamsBuilder) -> None:
        moved = builder.stream(orders).repartition("moved", partitions=2, partitioner=elsewhere)
        moved.join(builder.table(customers, name="names"), lambda amount, name: amount).to(out)

    driver = TopologyTestDriver(topology, partitions=2)
    key = next(key for key in "abcdefgh" if partition_for(key.encode(), 2) == 0)
    driver.pipe(customers, "Ann", key=key, timestamp_ms=1)
    driver.pipe(orders, 1, key=key, timestamp_ms=2)

    (end,) = ends(driver.why(key, out), "another partition")
    assert end.numbers == {"partition": 1, "other_partition": 0}
    assert "wrote moved-repartition-1 offset 0 with its own partitioner " in end.text
    assert "elsewhere' (" in end.text


def test_records_not_read_yet_are_named_with_position_and_lag() -> None:
    """Payments are held until orders have a record; their lag is what the task has yet to process."""

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).merge(builder.stream(payments)).to(out)

    driver = of(topology, *((payments, "ann", number, number) for number in range(3)), max_task_idle_ms=1000)
    story = driver.why("zoe")
    (note,) = ends(story, "not yet read")
    assert note.numbers == {"lag": 3, "position": 0, "end": 3}


def test_dead_letter_is_named_with_the_error_and_the_topic() -> None:
    def fails(amount: int) -> int:
        return 100 // amount

    driver = of(
        lambda builder: builder.stream(orders).map_values(fails, name="divide").to(out),
        (orders, "ann", 0, 5),
        processing_handler="continue",
        errors_dead_letter_queue_topic_name="letters",
    )

    (end,) = ends(driver.why("ann", out), "dead letter")

    assert end.node == "divide"
    assert "ZeroDivisionError" in end.text
    assert "'letters'" in end.text


def test_failure_that_ends_the_task_is_named() -> None:
    driver = of(lambda builder: builder.stream(orders).map_values(lambda amount: 1 // amount, name="divide").to(out))
    with pytest.raises(Exception, match="ZeroDivisionError"):
        driver.pipe(orders, 0, key="ann", timestamp_ms=1)

    (end,) = ends(driver.why("ann"), "failed")
    assert "ZeroDivisionError" in end.text


def test_unreadable_record_is_a_note_since_its_key_is_unknown() -> None:
    driver = TopologyTestDriver(lambda builder: builder.stream(orders).to(out), deserialization_handler="continue")
    driver.pipe_bytes(orders, b"ann", b"no number", timestamp_ms=1)

    (note,) = ends(driver.why("ann"), "unreadable")
    assert "orders-0 at offset 0" in note.text


def test_tombstone_is_named() -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.table(customers, name="names").join(builder.table(texts, name="texts"), lambda a, b: 1).to_stream().to(
            out
        )

    assert ends(of(topology, (customers, "ann", None, 1)).why("ann", out), "tombstone")


def test_tombstone_that_was_written_is_an_output() -> None:
    story = of(lambda builder: builder.table(customers).to_stream().to(texts), (customers, "ann", None, 1)).why("ann")
    assert "(a tombstone)" in story.outputs[0].text


def test_record_that_waits_for_another_input_is_named() -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).merge(builder.stream(payments)).to(out)

    driver = of(topology, (payments, "bob", 1, 1), (orders, "ann", 1, 5), max_task_idle_ms=1000)

    (note,) = ends(driver.why("ann"), "waiting for input")
    assert "orders-0 offset 0 waits in task 0_0, as input payments-0 has no record yet" in note.text


class Silent(Processor[str, int, str, int]):
    """Keeps amounts, and forwards them when stream time has gone on."""

    totals = timestamped_key_value_store(str, int, "kept")

    def process(self, record: Record[str, int]) -> None:
        self.totals.put(record.key, (record.value, record.timestamp_ms))

    @punctuate(10 * SECOND, PunctuationType.STREAM_TIME)
    def emit(self, now_ms: int) -> None:
        for key in ("ann", "bob"):
            row = self.totals.get(key)
            if row is not None:
                self.context.forward(key, row.value)


def test_processor_that_forwarded_nothing_is_named_with_what_it_wrote() -> None:
    driver = of(lambda builder: builder.stream(orders).process(Silent).to(out), (orders, "zoe", 3, 1_000))
    (end,) = ends(driver.why("zoe"), "forwarded nothing")
    assert "kept.put('zoe', (3, 1000))" in end.text


def test_output_of_a_timer_comes_from_the_record_that_wrote_the_row() -> None:
    driver = of(
        lambda builder: builder.stream(orders).process(Silent, name="silent").to(out),
        (orders, "ann", 3, 1_000), (orders, "zoe", 3, 12_000),
    )  # fmt: skip

    text = driver.why("ann").text

    assert "silent: a timer, at 1970-01-01T00:00:12Z" in text
    assert "orders-0 offset 0: 'ann': 3 at 1970-01-01T00:00:01Z" in text
    assert "kept.get('ann')" in text


def test_records_that_went_on_under_another_key_are_told() -> None:
    def topology(builder: StreamsBuilder) -> None:
        grouped = builder.stream(orders).group_by(lambda key, amount: f"level {amount}", name="by-level")
        grouped.count("levels").to_stream().to(out)

    (note,) = ends(of(topology, (orders, "ann", 3, 0), (orders, "ann", 4, 0)).why("ann"), "another key")
    assert note.text.endswith("from node by-level under other keys: 'level 3', 'level 4'")


def test_unknown_key_is_told_with_similar_ones() -> None:
    (note,) = ends(of(lambda builder: builder.stream(orders).to(out), (orders, "anna", 1, 0)).why("ann"), "no such key")
    assert "orders-0 (1); similar keys: 'anna'" in note.text


def test_another_time_is_told_with_the_nearest() -> None:
    driver = of(lambda builder: builder.stream(orders).to(out), (orders, "ann", 1, 100))
    (note,) = ends(driver.why("ann", at=40), "not at that time")
    assert "the nearest is 'ann': 1 at 1970-01-01T00:00:00.100Z" in note.text


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"topic": "ot"}, "did you mean 'out'"),
        ({"node": "large"}, "has no node 'large'"),
        ({"at": "noon"}, "give a time"),
    ],
)
def test_mistakes_are_told(arguments: dict[str, Any], error: str) -> None:
    driver = of(lambda builder: builder.stream(orders).to(out))
    with pytest.raises((UnknownTopicError, InputError), match=error):
        driver.why("ann", **arguments)


def test_sink_that_chooses_topics_is_asked_for_any_topic() -> None:
    driver = of(lambda builder: builder.stream(orders).to(lambda key, value, _: f"of-{key}"), (orders, "ann", 1, 0))
    assert "orders-0 offset 0" in driver.why("ann", "of-ann").text


def test_global_table_without_a_row_is_named_with_its_key() -> None:
    def topology(builder: StreamsBuilder) -> None:
        table = builder.global_table(customers, name="names")
        builder.stream(orders).join(table, lambda amount, name: amount, key=lambda key, amount: f"c{amount}").to(out)

    (end,) = ends(of(topology, (orders, "ann", 7, 0)).why("ann"), "no partner")
    assert end.text == "global table names had no row 'c7' when it came"


def test_deleted_row_is_told_apart_from_one_that_never_came() -> None:
    driver = of(with_table, (customers, "ann", "Ann", 1), (customers, "ann", None, 2), (orders, "ann", 1, 3))
    (end,) = ends(driver.why("ann", out), "no partner")
    assert "the row was deleted" in end.text


def test_join_with_a_table_leads_to_the_row_that_was_read() -> None:
    names = [(customers, "ann", "Ann", 1), (customers, "ann", "Anna", 2)]
    driver = of(with_table, *names, (orders, "ann", 1, 3), (customers, "ann", "Anne", 4))

    text = driver.why("ann", out).text

    assert "the row 'ann' of store names, which held 'Anna' of 1970-01-01T00:00:00.002Z" in text
    assert "customers-0 offset 1: 'ann': 'Anna'" in text
    assert "offset 0: 'ann': 'Ann'" not in text


def test_hopping_windows_have_each_their_own_records() -> None:
    def topology(builder: StreamsBuilder) -> None:
        windows = TimeWindows.of(10 * SECOND, advance=5 * SECOND)
        grouped = builder.stream(orders).group_by_key().windowed_by(windows)
        grouped.count("counts").to_stream(lambda key, _: f"{key.key}@{key.window.start_ms}").to(out)

    driver = of(topology, (orders, "ann", 1, 1_000), (orders, "ann", 2, 6_000), (orders, "ann", 3, 12_000))

    assert (
        "2 records of key 'ann' in window 1970-01-01T00:00:05Z to 1970-01-01T00:00:15Z" in driver.why("ann@5000").text
    )
    assert (
        "1 record of key 'ann' in window 1970-01-01T00:00:10Z to 1970-01-01T00:00:20Z" in driver.why("ann@10000").text
    )


def test_records_that_a_window_has_missed_are_told_with_its_output() -> None:
    key = time_windowed(str, 10 * SECOND)

    def topology(builder: StreamsBuilder) -> None:
        windows = TimeWindows.of(10 * SECOND, grace=2 * SECOND)
        grouped = builder.stream(orders).group_by_key().windowed_by(windows)
        grouped.count("counts").to_stream().to("windows", key=key, value=int)

    rows = [("ann", 1_000), ("bob", 13_000), ("ann", 2_000)]
    story = of(topology, *((orders, key, 1, at) for key, at in rows)).why("ann", "windows")

    assert story.outputs[0].value == 1
    assert [end.reason for end in story.ends] == ["late"]
    assert "where other records of its window ended" in story.text


def test_wall_clock_and_headers_are_repeated() -> None:
    class Headed(Processor[str, int, str, int]):
        def process(self, record: Record[str, int]) -> None:
            self.context.forward(record.key, len(record.headers))

    driver = TopologyTestDriver(lambda builder: builder.stream(orders).process(Headed).to(out))
    driver.pipe(orders, 1, key="ann", timestamp_ms=1, headers=(("a", b"1"), ("b", b"2")))
    driver.advance_wall_clock(5)
    assert driver.why("ann").outputs[0].value == 2
    assert driver.read(out) == [("ann", 2)]


def test_value_that_a_count_passes_through_as_bytes_is_shown_as_the_object() -> None:
    def topology(builder: StreamsBuilder) -> None:
        by_amount = builder.stream(orders).group_by(lambda _, amount: f"level {amount}")
        counts = by_amount.windowed_by(TimeWindows.of(SECOND, grace=timedelta(0))).count("levels")
        counts.to_stream(lambda windowed, _: windowed.key).to(out)

    driver = of(topology, (orders, "ann", 2, 9_000), (orders, "bob", 3, 1_000))

    (end,) = ends(driver.why("level 3", out), "late")
    assert end.record is not None
    assert end.record.value == 3
    assert "'level 3': 3 at 1970-01-01T00:00:01Z" in driver.why("level 3", out).text
    found = driver.why("level 2", out)
    assert "orders-0 offset 0: 'ann': 2 at 1970-01-01T00:00:09Z" in found.text


def test_duplicate_is_named_with_the_record_that_passed() -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).deduplicate(lambda _, amount: amount % 2, within=SECOND).to(out, name="sink")

    driver = of(topology, (orders, "ann", 1, 0), (orders, "ann", 2, 10), (orders, "ann", 3, 30))

    (end,) = ends(driver.why("ann", out, at=30), "duplicate")

    assert end.numbers == {"within_ms": 1000, "apart_ms": 30}
    assert "a record with the id ('ann', 1) has passed within 1,000 ms: orders-0 offset 0, 30 ms earlier" in end.text
