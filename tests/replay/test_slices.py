"""Slices: what divides history does not show in what comes of it."""

import sys
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from streams import (
    JoinWindows,
    Processor,
    PunctuationType,
    Record,
    StreamsBuilder,
    TimeWindows,
    Topic,
    key_value_store,
)
from streams.replay.calls import schedule
from streams.replay.calls.failures import explained_failure
from streams.replay.calls.progress import title_of
from streams.replay.calls.state import ReplayState, read_manifest
from streams.replay.errors import ReplayError
from streams.replay.run.local import LocalExecutor
from streams.replay.run.session import ReplaySession
from tests.replay.corpus import written_subjects
from tests.replay.outcomes import (
    Outcome,
    Row,
    archived,
    drive,
    lived,
    replayed_outcome,
    result_of,
    session_of,
)

_left = Topic("left", key=str, value=int)
_right = Topic("right", key=str, value=int)
_out = Topic("out", key=str, value=int)
_SKIPPING = {"deserialization_handler": "continue", "errors_dead_letter_queue_topic_name": "dead"}


def row(partition: int, time: int, value: int | None = 1, key: str = "k") -> Row:
    """Return a record; None is a value that cannot be read."""
    return Row(partition, key.encode(), b"bad" if value is None else value.to_bytes(8, "big"), time)


def pairs(builder: StreamsBuilder) -> None:
    """Join two topics, then count behind a repartition."""
    windows = JoinWindows.of(timedelta(milliseconds=50), grace=timedelta(milliseconds=20))
    (
        builder.stream(_left)
        .join(builder.stream(_right), lambda left, right: left * 10 + right, windows)
        .group_by(lambda _, value: f"v{value % 3}", key=str)
        .windowed_by(TimeWindows.of(timedelta(milliseconds=40), grace=timedelta(milliseconds=10)))
        .count("pairs")
        .to_stream(lambda key, _: key.key)
        .to(_out)
    )


def both(topology: Any, inputs: dict[str, list[Row]], root: Path, slices: Any, **options: Any) -> tuple[Outcome, Any]:
    """Return what a bounded run gives, and a session that has run in slices."""
    live = lived(topology, inputs, partitions=3, **options)
    session = session_of(
        topology,
        archived(root / "archives", inputs, dict.fromkeys(inputs, 3)),
        root / "replay",
        partitions=3,
        slices=slices,
        **options,
    )
    drive(session)
    return live, session


@pytest.mark.case
@pytest.mark.parametrize("chain", [1, 3, schedule.CHAIN_SLICES])
@pytest.mark.parametrize("slices", [2, 7, "25ms", timedelta(milliseconds=100)])
def test_partitions_without_rows_in_a_slice_or_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slices: Any, chain: int
) -> None:
    """Partition 0 ends early, 1 begins late, 2 never has a row: tasks wait for them, and lose nothing."""
    monkeypatch.setattr(schedule, "CHAIN_SLICES", chain)
    early = [row(0, time, time % 9) for time in range(0, 100, 3)]
    late = [row(1, time, time % 7) for time in range(300, 400, 5)]

    live, session = both(pairs, {"left": early + late, "right": early[::2] + late[::3]}, tmp_path, slices)

    assert live.outputs["out"]
    assert live.difference(replayed_outcome(result_of(session))) is None
    assert session.slices_done > 1
    assert not any(len(table.ranges) for table in session.state.tables.values()), (
        "all that tasks wrote for each other is read"
    )


def test_unreadable_records_ahead_of_a_slice_are_dropped_once(tmp_path: Path) -> None:
    """The left topic is far ahead of the right one: what was read of it and not processed is read again."""
    left = [row(0, time, None if time % 4 == 0 else time) for time in range(40)]
    right = [row(0, 1000 + time) for time in range(5)]

    live, session = both(pairs, {"left": left, "right": right}, tmp_path, "10ms", **_SKIPPING)

    assert sum(live.dropped.values()) == 10
    assert live.difference(replayed_outcome(result_of(session))) is None


def test_history_of_nothing_but_unreadable_records(tmp_path: Path) -> None:
    """They are counted and kept, though no record is ever processed."""
    live, session = both(pairs, {"left": [row(0, 1, None)], "right": [row(1, 2, None)]}, tmp_path, 2, **_SKIPPING)

    assert sum(len(found) for found in live.outputs["dead"].values()) == 2
    assert live.difference(replayed_outcome(result_of(session))) is None


def test_dead_letters_name_the_topic_and_not_the_lane(tmp_path: Path) -> None:
    """A topic that several tasks write and read is kept in lanes."""
    subject = next(found for found in written_subjects() if found.name == "through")

    live, _ = both(subject.topology, dict(subject.inputs), tmp_path, None, **subject.settings)

    headers = [dict(record[4]) for found in live.outputs["dead"].values() for record in found]
    assert {header["__streams.errors.topic"] for header in headers} == {b"events", b"more", b"mid"}
    assert {header["__streams.errors.partition"] for header in headers} == {b"0", b"1", b"2"}


def _counts_of_drops(builder: StreamsBuilder) -> None:
    table = builder.global_table(_right, name="rights")
    builder.stream(_left).join(table, lambda left, right: left + right, key=lambda key, _: key).to(_out)


def test_global_stores_count_what_they_drop_once(tmp_path: Path) -> None:
    """They are filled anew when a replay goes on, whatever the number of slices."""
    inputs = {"left": [row(0, time) for time in range(20)], "right": [row(0, 1), row(0, 2, None), row(1, 3)]}
    live, session = both(_counts_of_drops, inputs, tmp_path, 4, **_SKIPPING)
    again = session_of(
        _counts_of_drops,
        {topic: tmp_path / "archives" / topic for topic in inputs},
        tmp_path / "replay",
        partitions=3,
        slices=4,
        resume=True,
        **_SKIPPING,
    )
    drive(again)

    assert sum(live.dropped.values()) == 1
    assert live.difference(replayed_outcome(result_of(session))) is None
    assert live.difference(replayed_outcome(result_of(again))) is None


def _ticking(*, in_init: bool) -> Any:
    class Ticking(Processor[str, int, str, int]):
        held = key_value_store(str, int, "held")

        def init(self, context: Any) -> None:
            self.is_ticking = in_init
            if in_init:
                self.start()

        def start(self) -> None:
            self.context.schedule(timedelta(milliseconds=10), PunctuationType.STREAM_TIME, self.tick)

        def process(self, record: Record[str, int]) -> None:
            if not self.is_ticking:
                self.is_ticking = True
                self.start()
            self.held.put(record.key, (self.held.get(record.key) or 0) + record.value)

        def tick(self, now_ms: int) -> None:
            for key, value in list(self.held.all()):
                self.context.forward(key, value)

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(_left).process(Ticking, key=str, value=int).to(_out)

    return topology


def test_timers_go_on_from_slice_to_slice(tmp_path: Path) -> None:
    inputs = {"left": [row(time % 2, time * 3, key=f"k{time % 4}") for time in range(60)]}

    live, session = both(_ticking(in_init=True), inputs, tmp_path, 6)

    assert live.outputs["out"]
    assert live.difference(replayed_outcome(result_of(session))) is None


def test_timers_that_records_schedule_are_refused_in_slices(tmp_path: Path) -> None:
    """Nothing could make them again; without slices they are as good as any."""
    inputs = {"left": [row(0, time * 3) for time in range(60)]}
    live, session = both(_ticking(in_init=False), inputs, tmp_path / "whole", None)
    assert live.difference(replayed_outcome(result_of(session))) is None

    sliced = session_of(
        _ticking(in_init=False),
        {"left": tmp_path / "whole" / "archives" / "left"},
        tmp_path / "sliced",
        partitions=3,
        slices=3,
    )
    with pytest.raises(ReplayError, match=r"outside of init\(\).*replay without slices"):
        try:
            drive(sliced)
        except ReplayError:
            raise
        except Exception as error:
            raise explained_failure(sliced, error) from error


def _rounds(session: ReplaySession, look: Callable[[list[Any]], Any]) -> list[Any]:
    """Run a replay, and return what ``look`` says of each list of its calls."""
    found = []

    def noted() -> Any:
        steps = session.steps()
        works = next(steps)
        while True:
            found.append(look(works))
            try:
                works = steps.send((yield works))
            except StopIteration:
                return

    drive(noted())
    return found


def _slices_and_stages(works: list[Any]) -> list[tuple[tuple[int, ...], int]]:
    """Return of each call the numbers of its slices, and its stage."""
    of_slices = [(getattr(work, "slices", (work,)), work.stage) for work in works if work.folder.startswith("slices/")]
    return sorted({(tuple(int(own.folder[-5:]) for own in slices), stage) for slices, stage in of_slices})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "groups"),
    [
        ("CHAIN_SLICES", 1, [(0,), (1,), (2,), (3,), (4,)]),
        ("CHAIN_SLICES", 2, [(0, 1), (2, 3), (4,)]),
        ("CHAIN_ROWS", 350, [(0, 1, 2), (3, 4)]),
        ("CHAIN_ROWS", 0, [(0,), (1,), (2,), (3,), (4,)]),
    ],
)
def test_stages_of_neighbouring_slices_run_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: int, groups: list[tuple[int, ...]]
) -> None:
    """Small slices share their calls, and beside the second stage of a group, the first one of the next group runs."""
    monkeypatch.setattr(schedule, name, value)
    left = [row(number % 3, time, time % 9) for number, time in enumerate(range(0, 500, 2))]
    places = archived(tmp_path / "archives", {"left": left, "right": left}, {"left": 3, "right": 3})
    session = session_of(pairs, places, tmp_path / "replay", partitions=3, slices=5)

    rounds = [found for found in _rounds(session, _slices_and_stages) if found]

    both_stages = [[(one, 1), (other, 0)] for one, other in pairwise(groups)]
    assert rounds == [[(groups[0], 0)], *both_stages, [(groups[-1], 1)]]
    assert session.slices_done == 5


def test_titles_say_all_slices_that_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In groups of two, the second stage of a group runs beside the first one of the next group; the end is alone."""
    monkeypatch.setattr(schedule, "CHAIN_SLICES", 2)
    left = [row(number % 3, time, time % 9) for number, time in enumerate(range(0, 500, 2))]
    places = archived(tmp_path / "archives", {"left": left, "right": left}, {"left": 3, "right": 3})
    session = session_of(pairs, places, tmp_path / "replay", partitions=3, slices=5)

    titles = _rounds(session, lambda works: title_of(session, works).partition(": ")[2].partition(",")[0])

    expected = ["slices 1 to 2 of 6", "slices 1 to 4 of 6", "slices 3 to 5 of 6", "slice 5 of 6"]
    assert titles[-6:] == [*expected, "slice 6 of 6", "slice 6 of 6"]


def _calls_of_driver(session: ReplaySession) -> list[int]:
    """Run a replay, and return how many functions the driver has called between each two lists of calls."""
    counts: list[int] = []
    steps, executor = session.steps(), LocalExecutor(1)

    def count(frame: Any, event: str, argument: Any) -> None:
        counts[-1] += event in ("call", "c_call")

    works = next(steps)
    while True:
        reports = executor.run(works)
        counts.append(0)
        sys.setprofile(count)
        try:
            works = steps.send(reports)
        except StopIteration:
            return counts
        finally:
            sys.setprofile(None)


@pytest.mark.slow
def test_a_slice_costs_the_driver_the_same_whatever_the_number_of_slices_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stage 1 of a slice runs with stage 0 of the next one: what was read is not passed from slice to slice."""
    monkeypatch.setattr(schedule, "CHAIN_SLICES", 1)
    inputs = {topic: [row(time % 3, time, time // 6) for time in range(400)] for topic in ("left", "right")}
    archives = archived(tmp_path / "archives", inputs, dict.fromkeys(inputs, 3))
    session = session_of(pairs, archives, tmp_path / "replay", partitions=3, slices="10ms")

    counts = _calls_of_driver(session)

    early, late = counts[6:15], counts[-15:-6]
    assert session.slices_done == 40
    assert sum(late) < 1.05 * sum(early), (early, late)


@pytest.mark.slow
def test_only_needed_files_of_slices_are_left_also_after_a_kill_in_between(tmp_path: Path) -> None:
    """A slice deletes what it no longer needs; a file that a killed run has left is found by the next run."""
    inputs = {topic: [row(time % 3, time, time % 9) for time in range(0, 100, 2)] for topic in ("left", "right")}
    archives = archived(tmp_path / "archives", inputs, dict.fromkeys(inputs, 3))
    first = session_of(pairs, archives, tmp_path / "replay", partitions=3, slices="10ms", until=50, resume=True)
    drive(first)
    left = tmp_path / "replay" / "slices" / "00000" / "left.parquet"
    left.write_bytes(b"")

    again = session_of(pairs, archives, tmp_path / "replay", partitions=3, slices="10ms", resume=True)
    drive(again)

    assert again.slices_skipped
    found = {f"slices/{file}" for file in again.root.child("slices").files() if not file.endswith("MANIFEST.json")}
    outputs = {extent.file for extents in again.outputs.values() for extent in extents}
    states = [
        ReplayState.from_json(manifest["state"]).files()
        for number in again.all_numbers()[-7:]
        if (manifest := read_manifest(again.root.child(f"slices/{number:05d}"))) is not None
    ]
    assert found == {file for file in outputs.union(*states) if file.startswith("slices/")}
