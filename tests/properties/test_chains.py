"""Chains of operators over one input give the same records under all four drivers, whatever is late or early in them.

A chain reads one topic, and each repartition topic in it is written by one task per partition, so that the order of the
records is given: outputs are compared record for record, with their times, also those of a live run.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from streams import CountWindows, EmitStrategy, Processor, Record, StreamsBuilder, TimeWindows
from tests.properties.functions import Gaps
from tests.properties.profile import examples
from tests.properties.test_drivers import TOPICS, driven, inputs_of, live, replayed, rows_of
from tests.replay.outcomes import lived

MS = timedelta(milliseconds=1)
SIZES = TimeWindows(4, 2, 1)


class Shifted(Processor[str, int, str, int]):
    """Makes records out of order, by up to 6 ms."""

    def process(self, record: Record[str, int]) -> None:
        self.context.forward(record.key, record.value, timestamp_ms=max(0, record.timestamp_ms - record.value % 7))


def _shown(table: Any) -> Any:
    """Return the updates of a windowed table, deletions as -1."""
    stream = table.to_stream().map_values(lambda value: -1 if value is None else value)
    return stream.select_key(lambda key, value: key.key).repartition(key=str, value=int)


def _windowed(windows: Any, emits: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def step(stream: Any) -> Any:
        windowed = emits(stream.group_by_key(key=str, value=int).windowed_by(windows))
        merger = [lambda key, one, two: one + two] if isinstance(windows, Gaps) else []
        total = windowed.aggregate(lambda: 0, lambda key, value, total: (total * 3 + value) % 97, *merger, value=int)
        return _shown(total)

    return step


def _late(stream: Any) -> Any:
    windowed = stream.group_by_key(key=str, value=int).windowed_by(SIZES)
    windowed.count()
    return windowed.late()


def _dropped(stream: Any) -> Any:
    return stream.deduplicate(by=lambda key, value: value % 5, within=4 * MS, key=str, value=int, id=int).dropped()


def _latest(direction: str) -> Callable[[Any], Any]:
    def step(stream: Any) -> Any:
        left = stream.filter(lambda key, value: value % 2 == 0)
        right = stream.filter(lambda key, value: value % 2 > 0)
        return left.left_join_latest(
            right, lambda one, two: one * 100 + (two or 0), tolerance=4 * MS, grace=2 * MS, direction=direction,
            key=str, value=int, other_value=int,
        )  # fmt: skip

    return step


def _at_once(windowed: Any) -> Any:
    return windowed


def _on_close(windowed: Any) -> Any:
    return windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)


STEPS: dict[str, Callable[[Any], Any]] = {
    "shifted": lambda stream: stream.process(Shifted, key=str, value=int),
    "expiring": lambda stream: (
        stream.group_by_key(key=str, value=int).count(ttl=4 * MS).to_stream().map_values(lambda count: count or -1)
    ),
    "expiring table": lambda stream: (
        stream.to_table(key=str, value=int, ttl=4 * MS).to_stream().map_values(lambda v: -1 if v is None else v)
    ),
    "once": lambda stream: stream.deduplicate(by=lambda key, value: value % 5, within=4 * MS, id=int),
    "duplicates": _dropped,
    "late": _late,
    "by number": _windowed(CountWindows(3, 2), _at_once),
    "by number, on close": _windowed(CountWindows(3, 1), _on_close),
    "early by number": _windowed(SIZES, lambda windowed: windowed.emit(early_every=2)),
    "early by time": _windowed(SIZES, lambda windowed: windowed.emit(early_every=3 * MS)),
    "of a user": _windowed(Gaps(4, 1), _at_once),
    "of a user, on close": _windowed(Gaps(4, 1), _on_close),
    "latest": _latest("backward"),
    "next": _latest("forward"),
}


@frozen
class Chain:
    """Operators one after another, and their input."""

    steps: Sequence[str]
    rows: Sequence[tuple[str, str, int]]
    partitions: int

    @property
    def read(self) -> list[str]:
        """The topic that the chain reads."""
        return ["a"]

    @property
    def written(self) -> list[str]:
        """The topic that it writes."""
        return ["d"]

    def build(self, builder: StreamsBuilder) -> None:
        """Write the topology."""
        stream: Any = builder.stream(TOPICS["a"])
        for step in self.steps:
            stream = STEPS[step](stream)
        stream.to(TOPICS["d"])


CHAINS = st.builds(
    Chain,
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4),
    st.lists(st.tuples(st.just("a"), st.sampled_from("pqrs"), st.integers(0, 30)), max_size=24),
    st.sampled_from([1, 3]),
)


@pytest.mark.world
@examples(30)
@given(CHAINS)
def test_chains_give_the_same_records_under_all_four_drivers(chain: Chain) -> None:
    bounded = lived(chain.build, inputs_of(chain), partitions=chain.partitions)
    found = rows_of(bounded)

    assert bounded.difference(replayed(chain)) is None
    assert driven(chain) == found
    expected = sum(len(rows) for partitions in found.values() for rows in partitions.values())
    assert live(chain, expected) == found
