"""The order of records behind repartition topics: by place, then by producing task, then as written.

The place of a record is the highest place among the inputs that its task had processed when it wrote the record.  The
model below says the same in plain Python, and knows nothing else of the engine.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from streams import StreamsBuilder, Topic
from streams.core.blocks.partitioning import partition_for
from tests.runtime.bounded_runs import NUMBERS, Rows, run, started, written

PARTITIONS = 3
OUT = Topic("out", key=str, value=int)


class Row(NamedTuple):
    place: int
    key: str
    value: int
    time: int


#: A step behind a repartition topic: which records are kept, and their new keys.
Step = tuple[int, int]


def keeps(step: Step) -> Callable[[str, int], bool]:
    return lambda _, value: value % step[0] != 0


def rekeys(step: Step) -> Callable[[str, int], str]:
    return lambda _, value: f"g{value * step[1] % 5}"


def model(rows: Rows, steps: list[Step]) -> dict[int, list[tuple[str, int, int]]]:
    """Return the records of each partition in the order in which the last sub-topology reads them."""
    inputs: dict[int, list[Row]] = {number: [] for number in range(PARTITIONS)}
    for key, value, time in rows:
        own = inputs[partition_for(key.encode(), PARTITIONS)]
        own.append(Row(max(time, own[-1].place if own else -1), key, value, time))
    for step in steps:
        written: dict[int, list[tuple[int, int, int, Row]]] = {number: [] for number in range(PARTITIONS)}
        for task, read in inputs.items():
            reached = -1
            for index, row in enumerate(read):
                reached = max(reached, row.place)
                if keeps(step)(row.key, row.value):
                    key = rekeys(step)(row.key, row.value)
                    out = Row(reached, key, row.value, row.time)
                    written[partition_for(key.encode(), PARTITIONS)].append((reached, task, index, out))
        inputs = {number: [row for *_, row in sorted(lanes)] for number, lanes in written.items()}
    return {number: [(row.key, row.value, row.time) for row in read] for number, read in inputs.items() if read}


def topology_of(steps: list[Step]) -> Callable[[StreamsBuilder], None]:
    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(NUMBERS)
        for step in steps:
            stream = stream.filter(keeps(step)).select_key(rekeys(step)).repartition(partitions=PARTITIONS)
        stream.to(OUT)

    return topology


#: Rows whose times are out of order by up to 40 ms, where a new row comes each 10 ms or so.
disordered = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 60), st.integers(0, 12), st.integers(0, 40)), max_size=60
).map(lambda rows: [(key, value, 50 + 10 * index + gap - back) for index, (key, value, gap, back) in enumerate(rows)])
steps_of = st.lists(st.tuples(st.sampled_from([2, 3, 61]), st.integers(1, 4)), min_size=1, max_size=3)


@settings(max_examples=15)
@given(disordered, steps_of, st.sampled_from([1, 3]), st.sampled_from([1, 5, 1000]))
def test_records_behind_repartition_topics_are_read_by_place(
    rows: Rows, steps: list[Step], threads: int, poll: int
) -> None:
    (out,) = run(topology_of(steps), {"numbers": rows}, "out", num_stream_threads=threads, max_poll_records=poll)

    assert out == model(rows, steps)


def test_a_place_is_that_of_the_task_and_not_the_time_of_the_record() -> None:
    """Task A has passed 500 when it writes 300; the record of task B at 400 comes before it."""
    keys = sorted("abcdefgh", key=lambda key: partition_for(key.encode(), PARTITIONS))
    first, last = keys[0], keys[-1]
    rows = [(first, 4, 500), (first, 1, 300), (last, 2, 400)]

    (out,) = run(topology_of([(4, 0)]), {"numbers": rows}, "out")

    assert out == {partition_for(b"g0", PARTITIONS): [("g0", 2, 400), ("g0", 1, 300)]}


def test_places_go_on_in_a_further_run(tmp_path: Path) -> None:
    """The run ends between a record and one behind it in time: the place of the second one is that of the first."""
    keys = sorted("abcdefgh", key=lambda key: partition_for(key.encode(), PARTITIONS))
    first, last = keys[0], keys[-1]
    rows = [(first, 4, 500), (first, 1, 300), (last, 2, 400)]

    with started(topology_of([(4, 0)]), {"numbers": rows[:1]}, state_dir=tmp_path):
        pass
    with started(topology_of([(4, 0)]), {"numbers": rows}, state_dir=tmp_path) as finished:
        assert written(finished, "out") == {partition_for(b"g0", PARTITIONS): [("g0", 2, 400), ("g0", 1, 300)]}
