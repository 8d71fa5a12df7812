"""Topics that several tasks write in a bounded run: one order, whatever the speed of the tasks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import StreamsBuilder, StreamsError, Topic, Topology
from streams.core.blocks.records import Block, TaskId, TopicPartition
from streams.core.clock import SystemClock
from streams.core.settings.config import StreamsConfig
from streams.dsl.builder import build_topology
from streams.runtime.plan.plan import ApplicationPlan
from streams.runtime.tasks.lanes import merge_lanes
from tests.runtime.bounded_runs import CUTS, Rows, Written, count, run

words = Topic("words", key=str, value=int)
more = Topic("more", key=str, value=int)
middle = Topic("middle", key=str, value=int)
out = Topic("out", key=str, value=int)

#: Times go to and fro, keys are spread, and partitions differ in size.
WORDS: Rows = [(f"k{n * n % 13}", n, 100 + 10 * n - (n * 7 % 11) * 9) for n in range(120)]
MORE: Rows = [(f"m{n % 5}", 1000 + n, 25 * n) for n in range(40)]


def same_however_cut(topology: Any, inputs: Mapping[str, Rows], *topics: str, **options: Any) -> list[Written]:
    """Return what topics hold after a run; it must be the same with other threads, polls and buffers."""
    whole = run(topology, inputs, *topics, **options)
    for cut in CUTS:
        assert run(topology, inputs, *topics, **options, **cut) == whole, cut
    return whole


# --- the merge ----------------------------------------------------------------------------

Lane = list[tuple[int, bool]]


def cut_in_blocks(lane: Lane, number: int, sizes: Sequence[int]) -> Iterator[Block]:
    """Yield a lane's records in blocks; values tell where a record comes from."""
    start, rows = 0, [(time, f"{number}.{index}".encode(), is_headed) for index, (time, is_headed) in enumerate(lane)]
    for size in [*sizes, len(lane)]:
        part = rows[start : start + size]
        if part:
            has_headers = any(is_headed for *_, is_headed in part)
            headers = [(("h", value),) if is_headed else () for _, value, is_headed in part] if has_headers else None
            times, values = [time for time, *_ in part], [value for _, value, _ in part]
            yield Block([None] * len(part), values, times, headers, range(start, start + len(part)))
        start += size


def by_the_rule(lanes: Sequence[Lane]) -> list[bytes]:
    """Always the lane with the lowest head, ties by lane; record by record."""
    result, positions = [], [0] * len(lanes)
    while any(position < len(lane) for position, lane in zip(positions, lanes, strict=True)):
        heads = [(lane[positions[n]][0], n) for n, lane in enumerate(lanes) if positions[n] < len(lane)]
        _, number = min(heads)
        result.append(f"{number}.{positions[number]}".encode())
        positions[number] += 1
    return result


_LANES = st.lists(st.lists(st.tuples(st.integers(-1, 30), st.booleans()), max_size=12), max_size=5)


@given(_LANES, st.lists(st.integers(0, 4), max_size=6))
def test_lowest_head_goes_first_however_lanes_are_cut_in_blocks(lanes: list[Lane], sizes: list[int]):
    blocks = list(merge_lanes([cut_in_blocks(lane, number, sizes) for number, lane in enumerate(lanes)]))

    rows = [row for block in blocks for row in block.rows()]
    assert [value for _, _, value, _, _ in rows] == by_the_rule(lanes)
    assert [offset for offset, *_ in rows] == list(range(len(rows)))
    for _, _, value, time, headers in rows:
        number, index = map(int, (value or b"").split(b"."))
        assert (time, bool(headers)) == lanes[number][index]
        assert headers in ((), (("h", value),))


def test_one_lane_passes_through_untouched():
    blocks = list(cut_in_blocks([(5, False), (3, False), (9, False)], 0, [2]))

    assert all(merged is block for merged, block in zip(merge_lanes([iter(blocks)]), blocks, strict=True))


def test_next_block_of_a_lane_is_asked_for_when_its_last_record_is_given_out():
    """So that no more than a block of each lane is held."""
    asked: list[tuple[int, int]] = []

    def lane(number: int, times: Sequence[int]) -> Iterator[Block]:
        for time in times:
            asked.append((number, time))
            yield Block([None], [b""], [time], None, range(1))

    merged = merge_lanes([lane(0, [1, 2, 50]), lane(1, [10, 20])])

    assert asked == []
    assert [next(merged).timestamps[0] for _ in range(3)] == [1, 2, 10]
    assert asked == [(0, 1), (1, 10), (0, 2), (0, 50)]


# --- outputs of several tasks ---------------------------------------------------------------


def rekeyed(builder: StreamsBuilder) -> None:
    """The key changes before the sink, and nothing repartitions."""
    builder.stream(words).select_key(lambda key, value: f"v{value % 4}").to(out)


def written_twice(builder: StreamsBuilder) -> None:
    """Two parts write to one topic, each in several tasks."""
    rekeyed(builder)
    builder.stream(more).map_values(lambda value: value + 1).to(out)


@pytest.mark.case
@pytest.mark.parametrize("partitions", [1, 2, 5])
@pytest.mark.parametrize("topology", [rekeyed, written_twice])
def test_output_of_several_tasks_does_not_depend_on_threads_and_polls(topology: Any, partitions: int):
    inputs = {"words": WORDS} if topology is rekeyed else {"words": WORDS, "more": MORE}

    [whole] = same_however_cut(topology, inputs, "out", partitions=partitions)

    assert count(whole) == sum(map(len, inputs.values()))


def test_output_is_merged_by_the_lowest_head_of_the_tasks():
    """Task 0 has "a" and writes at 5, 30, then 7, which waits behind 30; task 1 has "d"."""
    rows: Rows = [("a", 0, 5), ("a", 1, 30), ("a", 2, 7), ("d", 3, 6), ("d", 4, 30), ("d", 5, 31)]

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(words).select_key(lambda key, value: "one").to(out)

    [whole] = run(topology, {"words": rows}, "out", partitions=2)

    assert [[time for *_, time in rows] for rows in whole.values()] == [[5, 6, 30, 7, 30, 31]]


def test_output_of_transactions_is_the_same_and_without_gaps():
    [whole] = run(rekeyed, {"words": WORDS}, "out")

    for threads in (1, 3):
        settings = {"processing_guarantee": "exactly_once_v2", "commit_interval_ms": 1, "max_poll_records": 5}
        assert run(rekeyed, {"words": WORDS}, "out", num_stream_threads=threads, **settings) == [whole]


@pytest.mark.world
def test_topics_that_are_chosen_for_records_have_one_order_too():
    """Nobody knows them before; one of them has a sink of its own as well."""

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(words).select_key(lambda key, value: f"v{value % 4}").to(
            lambda key, value, context: "even" if value % 2 == 0 else "odd", key=str, value=int
        )
        builder.stream(more).to("odd", key=str, value=int)

    whole = same_however_cut(topology, {"words": WORDS, "more": MORE}, "even", "odd")

    assert list(map(count, whole)) == [60, 100]


def test_topic_that_is_read_cannot_be_chosen_for_a_record():
    """Its reader could not know when it ends."""

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(words).to(lambda key, value, context: "more", key=str, value=int)
        builder.stream(more).to(out)

    with pytest.raises(StreamsError, match="chose topic 'more'"):
        run(topology, {"words": WORDS, "more": MORE}, "out")


@pytest.mark.world
def test_dead_letters_of_several_tasks_have_one_order():
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(words).map_values(lambda value: 1 // (value % 3)).to(out)

    handlers = {"processing_handler": "continue", "errors_dead_letter_queue_topic_name": "dead"}
    whole = same_however_cut(topology, {"words": WORDS}, "out", "dead", **handlers)

    assert list(map(count, whole)) == [80, 40]


# --- topics that are written and read ---------------------------------------------------------


def through(builder: StreamsBuilder) -> None:
    """One part writes what another reads."""
    builder.stream(words).select_key(lambda key, value: f"v{value % 4}").to(middle)
    builder.stream(middle).map_values(lambda value: value + 1).to(out)


@pytest.mark.case
@pytest.mark.parametrize("partitions", [1, 2, 5])
@pytest.mark.parametrize("inputs", [{"words": WORDS}, {"words": WORDS, "middle": MORE}], ids=["alone", "with a file"])
def test_topic_that_is_written_and_read_loses_nothing_and_has_one_order(inputs: Mapping[str, Rows], partitions: int):
    whole = same_however_cut(through, inputs, "middle", "out", partitions=partitions)

    assert list(map(count, whole)) == [sum(map(len, inputs.values()))] * 2


def test_file_goes_before_tasks_where_times_are_equal():
    rows: Rows = [("a", 1, 10), ("a", 2, 20)]

    [whole] = run(through, {"words": rows, "middle": [("x", 7, 10), ("x", 8, 20)]}, "middle", partitions=1)

    assert [(value, time) for _, value, time in whole[0]] == [(7, 10), (1, 10), (8, 20), (2, 20)]


def test_results_from_the_final_cache_flush_are_read_downstream():
    """The record cache buffers the counts until the input has ended."""

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(words).group_by_key().count().to_stream().to(middle)
        builder.stream(middle).to(out)

    [whole] = run(topology, {"words": WORDS}, "out", cache_max_bytes=1_000_000)

    assert {(key, value) for rows in whole.values() for key, value, _ in rows} == {
        (key, sum(key == other for other, _, _ in WORDS)) for key, _, _ in WORDS
    }


@pytest.mark.world
def test_join_behind_a_topic_that_is_written_and_read_finds_all_pairs():
    """The table's rows come through a topic; each stream record meets the row that was valid at its time."""
    table = Topic("rates", key=str, value=int)
    rows: Rows = [(f"k{n % 7}", n, 10 * n) for n in range(100)]

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(words).map(lambda key, value: (key, value * 2)).to(table)
        builder.stream(more).join(builder.table(table), lambda left, right: right).to(out)

    [whole] = same_however_cut(topology, {"words": rows, "more": [(key, 0, t + 5) for key, _, t in rows]}, "out")

    assert sorted(value for rows in whole.values() for _, value, _ in rows) == [2 * n for n in range(100)]


def counted_down(builder: StreamsBuilder) -> None:
    """A part writes what it reads, until nothing is left."""
    builder.stream(words).to(middle)
    down = builder.stream(middle).map(lambda key, value: (f"v{value % 7}", value // 2))
    down.filter(lambda key, value: value > 0).to(middle)
    down.filter(lambda key, value: value == 0).to(out)


def round_about(builder: StreamsBuilder) -> None:
    """Two parts write what the other one reads, one of them in a table."""
    other = Topic("other", key=str, value=int)
    builder.stream(middle).map(lambda key, value: (f"v{value % 7}", value // 2)).to(other)
    latest = builder.stream(other).to_table("latest").to_stream()
    latest.filter(lambda key, value: value > 0).to(middle)
    latest.filter(lambda key, value: value == 0).to(out)


@pytest.mark.world
@pytest.mark.parametrize(("topology", "topic"), [(counted_down, "words"), (round_about, "middle")])
@pytest.mark.parametrize("partitions", [1, 3])
def test_cycle_through_a_topic_of_the_user_ends_when_nothing_is_left(topology: Any, topic: str, partitions: int):
    inputs = {topic: WORDS, "middle": MORE} if topic != "middle" else {"middle": WORDS}

    [whole] = same_however_cut(topology, inputs, "out", partitions=partitions)

    assert count(whole) == sum(map(len, inputs.values()))


def test_table_of_a_topic_that_is_written_and_read_keeps_a_changelog_of_its_own(tmp_path):
    """Optimized tables use their topic as changelog; one that lies in lanes is none."""

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(words).to(middle)
        builder.stream(more).join(builder.table(middle), lambda left, right: right).to(out)

    keys = sorted({key for key, _, _ in WORDS})
    settings: dict[str, Any] = {
        "state_dir": tmp_path,
        "topology_optimization": "all",
        "default_store": "in_memory",
    }
    run(topology, {"words": WORDS, "more": []}, "out", **settings)
    [whole] = run(topology, {"words": WORDS, "more": [(key, 0, 5000) for key in keys]}, "out", **settings)

    last = {key: value for key, value, _ in WORDS}
    assert sorted(value for rows in whole.values() for _, value, _ in rows) == sorted(last.values())


def test_global_table_may_be_of_a_topic_that_tasks_write():
    """Whose order nobody promises: it is filled as records come, in all instances."""

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(words).to(middle)
        builder.stream(more).left_join(
            builder.global_table(middle), lambda left, right: left, key=lambda key, value: key
        ).to(out)

    result = run(topology, {"words": WORDS, "more": MORE}, "middle", "out")

    assert list(map(count, result)) == [120, 40]


# --- generated topologies -------------------------------------------------------------------

#: What parts of a topology do to records on their way from one topic to the next.
_STEPS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda stream: stream,
    "by value": lambda stream: stream.select_key(lambda key, value: f"v{value % 5}"),
    "twice": lambda stream: stream.flat_map(lambda key, value: [(key, value), (f"t{value % 3}", value + 1)]),
    "counted": lambda stream: stream.group_by(lambda key, value: f"c{value % 4}").count().to_stream(),
    "some": lambda stream: stream.filter(lambda key, value: value % 3 > 0),
}
_TOPICS = ("a", "b", "c", "d")
#: From, how, to: always on to a later topic.
_PARTS = st.tuples(st.sampled_from(_TOPICS[:3]), st.sampled_from(sorted(_STEPS)), st.integers(1, 3)).map(
    lambda part: (part[0], part[1], _TOPICS[min(_TOPICS.index(part[0]) + part[2], 3)])
)
_TIMES = st.lists(st.tuples(st.sampled_from("pqrs"), st.integers(0, 30), st.integers(0, 40)), max_size=12)


@pytest.mark.world
@given(st.lists(_PARTS, min_size=1, max_size=4), _TIMES, _TIMES, st.sampled_from([1, 2, 3]), st.sampled_from(CUTS[1:]))
def test_topics_between_any_parts_have_one_order(
    parts: list[tuple[str, str, str]], first: Rows, second: Rows, partitions: int, cut: dict[str, Any]
):
    """Topics with several readers and writers, read from files, from tasks and from both."""

    def topology(builder: StreamsBuilder) -> None:
        sources = {topic: builder.stream(Topic(topic, key=str, value=int)) for topic, _, _ in parts}
        for topic, step, target in parts:
            _STEPS[step](sources[topic]).to(target, key=str, value=int)

    read = sorted({topic for topic, _, _ in parts})
    inputs = dict(zip([read[0], read[-1]], [first, second], strict=True))
    topics = sorted({target for _, _, target in parts})

    assert run(topology, inputs, *topics, partitions=partitions, **cut) == run(
        topology, inputs, *topics, partitions=partitions
    )


# --- the plan -------------------------------------------------------------------------------


def plan_of(topology: Any, *, has_lanes: bool = True, **settings: Any) -> ApplicationPlan:
    """Return the plan of a topology whose topics all have two partitions."""
    config = StreamsConfig.of(application_id="app", **settings)
    built: Topology = build_topology(topology, config)
    external = dict.fromkeys(("words", "more", "middle", "out"), 2)
    return ApplicationPlan.make(built, config, SystemClock(), external, has_lanes=has_lanes)


def test_writers_are_the_tasks_that_may_write_a_topic():
    def topology(builder: StreamsBuilder) -> None:
        through(builder)
        builder.stream(more).to(lambda key, value, context: "any", key=str, value=int)

    plan = plan_of(topology, has_lanes=False, errors_dead_letter_queue_topic_name="dead")

    first, second, third = ([TaskId(sub, number) for number in range(2)] for sub in range(3))
    assert plan.writers("middle") == first
    assert plan.writers("out") == [*second, *third]
    assert plan.writers("any") == third
    assert plan.writers("words") == []
    assert plan.writers("dead") == [*first, *second, *third]
    assert plan.lanes == {}


def test_lane_of_the_file_comes_before_those_of_the_tasks():
    plan = plan_of(through)

    reader = TaskId(1, 1)
    lanes = [TopicPartition("app-middle.lanes", number) for number in (3, 4, 5)]
    assert [item.partition for item in plan.inputs(reader)] == lanes
    assert {item.name for item in plan.inputs(reader)} == {"middle"}
    assert plan.feed(TopicPartition("middle", 1)) == lanes[0]
    assert [plan.producer_of("middle", lane) for lane in lanes] == [None, TaskId(0, 0), TaskId(0, 1)]
    assert plan.physical(TaskId(0, 1))("middle", 1) == lanes[2]


def test_topics_of_one_writer_and_one_way_have_no_lanes():
    plan = plan_of(rekeyed)

    assert sorted(plan.lanes) == ["out"]
    assert plan.fed == set()
    assert plan.feed(TopicPartition("words", 1)) == TopicPartition("words", 1)
