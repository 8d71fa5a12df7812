"""A replay gives what a bounded live run gives, however history is cut, stopped and gone on with.

Record for record: keys, values, times, headers and offsets of every output, the contents of stores, and
what was dropped.  Some values cannot be read, so that they are dropped and go to a dead letter topic.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import define
from hypothesis import given, settings
from hypothesis import strategies as st

from streams import TimeWindows
from streams.replay.run.local import LocalExecutor
from streams.replay.run.session import ReplaySession
from tests.properties.plans import TOPICS, VERBS, Plan, Step
from tests.properties.profile import examples
from tests.properties.runs import placed
from tests.properties.strategies import ANYTHING, Demand, Row, plans, rows
from tests.replay import outcomes
from tests.replay.outcomes import (
    Inputs,
    Outcome,
    archived,
    drive,
    lived,
    quick_folder,
    replayed_outcome,
    result_of,
    session_of,
)

_DEAD = "dead"
#: Skips what cannot be read, and keeps it.
_SKIPPING = {"deserialization_handler": "continue", "errors_dead_letter_queue_topic_name": _DEAD}
_UNREADABLE = b"\x07"
_PARTITIONS = st.sampled_from([1, 3])
_SLICES = st.sampled_from([2, 3, 5, 10, "20ms", "1ms"])


@define
class Example:
    """A topology with history."""

    plan: Plan
    rows: list[Row]
    partitions: int
    unreadable: frozenset[int]

    def inputs(self, until: int | None = None) -> dict[str, list[outcomes.Row]]:
        """Return the records, or those among the first rows."""
        found: dict[str, list[outcomes.Row]] = {topic: [] for topic in self.plan.inputs}
        for number, (row, partition) in enumerate(placed(self.rows, self.partitions)):
            if until is None or number < until:
                topic = TOPICS[row.topic]
                value = _UNREADABLE if number in self.unreadable else topic.value_serde.serialize(row.value)
                found[row.topic].append(
                    outcomes.Row(partition, topic.key_serde.serialize(row.key), value, row.timestamp_ms)
                )
        return found

    def lived(self, **options: Any) -> Outcome:
        """Return what a bounded run gives."""
        return lived(self.plan, self.inputs(), partitions=self.partitions, **_SKIPPING | options)

    def session(self, root: Path, *, until: int | None = None, name: str = "replay", **options: Any) -> ReplaySession:
        """Return a replay over the rows, or the first of them, in a folder."""
        places = self.archive(root, self.inputs(until))
        # Inputs of a bounded run end, and do not become idle: the replay does not close windows by time either.
        options = {"wall_clock": "skip", **_SKIPPING, **options}
        return session_of(self.plan, places, root / name, partitions=self.partitions, **options)

    def archive(self, root: Path, inputs: Inputs) -> dict[str, Path]:
        """Put records behind those that are archived already."""
        return archived(root / "archives", inputs, dict.fromkeys(inputs, self.partitions))

    def replayed(self, **options: Any) -> Outcome:
        """Return what a replay gives."""
        with quick_folder() as root:
            return finished(self.session(root, **options))


def finished(session: ReplaySession, executor: Any = None) -> Outcome:
    drive(session, executor)
    return replayed_outcome(result_of(session))


#: What is rare among generated topologies: final results behind a repartition.
_CLOSING = Plan(
    (
        Step("stream", (), ("a",)),
        Step("windows", (0,), ("by_value", TimeWindows(20, 10, 5), "chained", "on_update")),
        Step("suppress_close", (1,)),
        Step("rekeyed", (2,), ("key_of_window",)),
        Step("process", (3,), ("tick_counter",)),
    )
)


@st.composite
def _examples(draw: st.DrawFn, demand: Demand = ANYTHING) -> Example:
    plan = draw(st.just(_CLOSING) | plans(demand) | plans(demand) | plans(demand) | plans(demand))
    given_rows = draw(rows(plan))
    numbers = st.integers(0, len(given_rows) - 1)
    return Example(plan, given_rows, draw(_PARTITIONS), draw(st.frozensets(numbers, max_size=3)))


_ANY = _examples()
#: Global tables are read whole before anything else, so how much of them is there makes a difference.
_GROWING = _examples(Demand(has_global=False))


@pytest.mark.slow
@examples(25)
@given(_ANY)
def test_replay_gives_what_a_bounded_run_gives(example: Example) -> None:
    assert example.lived().difference(example.replayed()) is None


@pytest.mark.slow
@examples(25)
@given(_ANY, _SLICES)
def test_slices_do_not_show(example: Example, slices: Any) -> None:
    assert example.lived().difference(example.replayed(slices=slices)) is None


@pytest.mark.slow
@examples(15)
@given(_ANY, st.sampled_from([None, 3]))
def test_final_flush_gives_what_that_of_a_bounded_run_gives(example: Example, slices: Any) -> None:
    live = example.lived(final_flush=True)

    assert live.difference(example.replayed(final_flush=True, slices=slices)) is None


@pytest.mark.slow
@examples(15)
@given(_ANY, st.sampled_from([None, 3]))
def test_stores_on_disk_give_what_those_in_memory_give(example: Example, slices: Any) -> None:
    memory = example.replayed(slices=slices)

    assert memory.difference(example.replayed(slices=slices, store="rocksdb")) is None


@pytest.mark.slow
@examples(15)
@given(_GROWING, st.integers(0, 30), st.sampled_from([1, 2, 5]))
def test_history_that_grows_gives_what_history_in_one_piece_gives(example: Example, until: int, slices: int) -> None:
    """The end, which processes what slices hold back, is done anew; the slices are not."""
    with quick_folder() as root:
        first = example.session(root, until=until, slices=slices)
        drive(first)
        grown = example.session(root, slices=slices, resume=True)

        assert example.lived().difference(finished(grown)) is None
        assert grown.slices_skipped == first.slices_done


@pytest.mark.slow
@examples(15)
@given(_GROWING, st.integers(0, 30), st.sampled_from([None, 3]))
def test_replay_from_a_snapshot_gives_what_a_further_run_gives(example: Example, until: int, slices: Any) -> None:
    """A bounded run stops behind the first rows and another one goes on; so does a replay from a snapshot."""
    with quick_folder() as root:
        for rows_until in (until, None):
            inputs = example.inputs(rows_until)
            live = lived(example.plan, inputs, partitions=example.partitions, state_dir=root / "live", **_SKIPPING)
        first = example.session(root, until=until, name="first", slices=slices)
        drive(first)
        result_of(first).save(root / "snapshot")
        before = replayed_outcome(result_of(first))
        rest = finished(example.session(root, name="rest", slices=slices, state_from=root / "snapshot"))

    assert _without_drops(live).difference(_one_behind_the_other(before, rest)) is None


def _without_drops(outcome: Outcome) -> Outcome:
    """Counters of live runs are those of one run."""
    return Outcome(outcome.outputs, outcome.stores)


def _one_behind_the_other(first: Outcome, second: Outcome) -> Outcome:
    outputs: dict[str, dict[int, Sequence[outcomes.Record]]] = {}
    for topic in {*first.outputs, *second.outputs}:
        for number in sorted({*first.outputs.get(topic, {}), *second.outputs.get(topic, {})}):
            found = [*first.outputs.get(topic, {}).get(number, ()), *second.outputs.get(topic, {}).get(number, ())]
            outputs.setdefault(topic, {})[number] = [(offset, *row[1:]) for offset, row in enumerate(found)]
    return Outcome(outputs, second.stores)


class KilledError(Exception):
    """Stands for whatever ends a replay before its time."""


@define
class Killing:
    """An executor that does so many calls, and no more; with ``is_late`` the last one is done, but not heard of."""

    left: int
    is_late: bool
    name: str = "killing"

    def run(self, works: list[Any], on_done: Any, on_look: Any = None) -> list[Any]:
        """Run what is allowed."""
        reports = []
        for work in works:
            if not self.left and not self.is_late:
                raise KilledError
            reports += LocalExecutor(1).run([work], on_done)
            if not self.left:
                raise KilledError
            self.left -= 1
        return reports


@examples(15)
@given(_ANY, st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=3), st.sampled_from([None, 4]))
def test_killed_replay_that_is_resumed_gives_what_one_that_was_not_gives(
    example: Example, kills: list[tuple[int, bool]], slices: Any
) -> None:
    """Killed in any call, or between a call and the manifest; slices with a manifest are not done again."""
    with quick_folder() as root:
        done = 0
        for left, is_late in kills:
            session = example.session(root, slices=slices, resume=True)
            try:
                drive(session, Killing(left, is_late))
            except Exception as error:
                if not isinstance(error, KilledError) and "KilledError" not in str(error):
                    raise
            assert session.slices_skipped == done
            done = session.slices_done
        last = example.session(root, slices=slices, resume=True)

        assert example.lived().difference(finished(last)) is None
        assert last.slices_skipped == done


@pytest.mark.slow
def test_examples_have_every_operator() -> None:
    """What the tests above generate is all that there is."""
    seen: Counter[str] = Counter()

    @settings(examples(2000), suppress_health_check=list(settings().suppress_health_check))
    @given(_ANY)
    def look(example: Example) -> None:
        seen.update(step.verb for step in example.plan.steps)
        seen.update(str(word) for step in example.plan.steps for word in step.arguments)
        seen.update(type(word).__name__ for step in example.plan.steps for word in step.arguments)

    look()

    wanted = {*VERBS, "tick_counter", "on_close", "SessionWindows", "SlidingWindows", "TimeWindows", "JoinWindows"}
    assert wanted <= seen.keys(), wanted - seen.keys()
