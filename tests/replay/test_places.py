"""Records out of order behind a repartition: replays merge lanes by place, as bounded runs do.

The place of a record is the highest place among the inputs that its task had processed when it wrote the record.  It
is above the record's own timestamp when a later record was processed before and filtered out, or sent elsewhere.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import StreamsBuilder, Topic
from streams.core.blocks.records import NO_LANE, Block, Lanes, TopicPartition
from streams.replay.errors import ReplayError
from streams.replay.spark.executor import SparkExecutor
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Segments
from tests.properties.profile import examples
from tests.replay.outcomes import (
    Outcome,
    Row,
    archived,
    drive,
    lived,
    quick_folder,
    replayed_outcome,
    result_of,
    session_of,
)

_words = Topic("words", key=str, value=int)
_out = Topic("out", key=str, value=int)
_LANE = TopicPartition("words-repartition", 0)


def row(partition: int, timestamp_ms: int, value: int) -> Row:
    return Row(partition, b"k", value.to_bytes(8, "big"), timestamp_ms)


def replayed(
    topology: Any, rows: Sequence[Row], partitions: int, slices: Any = None, executor: Any = None, **options: Any
) -> Outcome:
    with quick_folder() as root:
        inputs = archived(root / "archives", {"words": rows}, {"words": partitions})
        session = session_of(topology, inputs, root / "replay", partitions=partitions, slices=slices, **options)
        drive(session, executor)
        return replayed_outcome(result_of(session))


def times(outcome: Outcome) -> list[int]:
    (records,) = outcome.outputs["out"].values()
    return [timestamp_ms for _, _, _, timestamp_ms, _ in records]


# --- the rule -------------------------------------------------------------------------------


def filtered(builder: StreamsBuilder) -> None:
    """All records but the zeros, which are in the way, in one partition."""
    stream = builder.stream(_words).filter(lambda _, value: value > 0)
    stream.select_key(lambda _key, _value: "one").repartition("together", partitions=1).to(_out)


def sent_elsewhere(builder: StreamsBuilder) -> None:
    """Several tasks write one topic; zeros go to another one."""
    stream = builder.stream(_words).select_key(lambda _key, _value: "one")
    stream.filter(lambda _, value: value == 0).to(Topic("zeros", key=str, value=int))
    stream.filter(lambda _, value: value > 0).to(_out)


def chosen_by_record(builder: StreamsBuilder) -> None:
    """Records name their topics, which are not known before."""
    stream = builder.stream(_words).select_key(lambda _key, _value: "one")
    stream.to(lambda _key, value, _context: "out" if value else "zeros", key=str, value=int)


@pytest.mark.case(4)
@pytest.mark.parametrize("slices", [None, 2, "50ms"])
@pytest.mark.parametrize("topology", [filtered, sent_elsewhere, chosen_by_record])
def test_a_record_is_placed_where_its_task_was_and_not_at_its_own_timestamp(topology: Any, slices: Any) -> None:
    """Task 0 has processed 500 when it writes 300; task 1 is at 400.  By timestamps, 300 would come before 400."""
    rows = [row(0, 500, 0), row(0, 300, 1), row(1, 400, 2), row(1, 600, 3)]

    bounded = lived(topology, {"words": rows}, partitions=2)

    assert times(bounded) == [400, 300, 600]
    assert bounded.difference(replayed(topology, rows, 2, slices)) is None


def test_a_dead_letter_is_placed_where_its_task_was() -> None:
    """The dead letter queue topic has the records of several tasks, and no sink writes it."""
    rows = [row(0, 500, 1), row(0, 300, 2)._replace(value=b"?"), row(1, 400, 3)._replace(value=b"?")]
    settings: dict[str, Any] = {"deserialization_handler": "continue", "errors_dead_letter_queue_topic_name": "dead"}

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(_words).to(_out)

    bounded = lived(topology, {"words": rows}, partitions=2, **settings)

    assert bounded.difference(replayed(topology, rows, 2, **settings)) is None


@pytest.mark.spark
def test_spark_merges_by_place_too(spark: Any, tmp_path: Path) -> None:
    rows = [row(number % 2, (number * 37) % 61, number) for number in range(40)]
    topology = _levels([(2, 3, 2)])

    found = replayed(topology, rows, 2, slices=2, executor=SparkExecutor.of(spark, None, Place(str(tmp_path))))

    assert lived(topology, {"words": rows}, partitions=2).difference(found) is None


# --- any topology, in any disorder ----------------------------------------------------------

#: A level: which values go on, by how many keys they are grouped, and to how many partitions.
_LEVELS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=3)
#: Partition, time and value; a partition's times are in any order.
_ROWS = st.lists(st.builds(row, st.integers(0, 2), st.integers(0, 60), st.integers(0, 99)), min_size=1, max_size=40)


def _levels(levels: Sequence[tuple[int, int, int]]) -> Any:
    """Return a topology whose results depend on the order of all records of a partition, level by level."""

    def topology(builder: StreamsBuilder) -> None:
        stream: Any = builder.stream(_words)
        for number, (every, keys, partitions) in enumerate(levels):
            stream = (
                stream.filter(lambda _, value, every=every: value % (every + 1) > 0)
                .select_key(lambda _, value, keys=keys: f"k{value % keys}")
                .repartition(f"level-{number}", partitions=partitions)
                .group_by_key()
                .reduce(lambda one, two: (one * 31 + two) % 997, name=f"reduced-{number}")
                .to_stream()
            )
        stream.select_key(lambda _key, _value: "all").to(_out)

    return topology


@pytest.mark.slow
@examples(20)
@given(_LEVELS, _ROWS, st.sampled_from([2, 4, "7ms", "1ms"]))
def test_input_out_of_order_gives_what_a_bounded_run_gives(
    levels: list[tuple[int, int, int]], rows: list[Row], slices: Any
) -> None:
    topology = _levels(levels)
    bounded = lived(topology, {"words": rows}, partitions=3)

    assert bounded.difference(replayed(topology, rows, 3)) is None
    assert bounded.difference(replayed(topology, rows, 3, slices)) is None


# --- files ----------------------------------------------------------------------------------


def _written(root: Path, timestamps: Sequence[int], places: Sequence[int] | None, *, has_places: bool = True) -> Block:
    """Write a block and read it."""
    count = len(timestamps)
    lanes = None if places is None else Lanes([NO_LANE] * count, places)
    with Segments(Place(str(root))).writer("lanes.parquet", has_places=has_places) as writer:
        writer.append("repartition", _LANE, Block([b"k"] * count, [b"v"] * count, timestamps, lanes=lanes))
    (block,) = Segments(Place(str(root))).blocks(extent for _, _, extent in writer.written)
    return block


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=9))
def test_places_above_and_below_timestamps_come_back(rows: list[tuple[int, int]]) -> None:
    timestamps, places = zip(*rows, strict=True)

    with quick_folder() as root:
        block = _written(root, list(timestamps), list(places))

    assert block.lanes is not None
    assert list(block.lanes.places) == list(places)


def test_places_of_records_in_order_need_no_space(tmp_path: Path) -> None:
    """10,000 records: the empty column costs less than a bit for each."""
    order = list(range(10_000))
    sizes = []
    for name, has_places in (("with", True), ("without", False)):
        (tmp_path / name).mkdir()
        _written(tmp_path / name, order, order if has_places else None, has_places=has_places)
        sizes.append((tmp_path / name / "lanes.parquet").stat().st_size)

    assert sizes[0] - sizes[1] < 1_000


def test_inputs_have_no_places(tmp_path: Path) -> None:
    assert _written(tmp_path, [2, 1], None, has_places=False).lanes is None


def test_folder_of_a_release_without_places_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("streams.replay.calls.state.FORMAT", 6)
        inputs = archived(tmp_path / "archives", {"words": [row(0, 1, 1)]}, {"words": 1})
        drive(session_of(filtered, inputs, tmp_path / "replay"))

    with pytest.raises(ReplayError, match="format 6, this version reads 7; create the folder again"):
        drive(session_of(filtered, inputs, tmp_path / "replay", resume=True))
