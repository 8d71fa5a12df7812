"""The kit for sinks: ours pass it, and each way in which a sink can be wrong is found."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from attrs import define, field

from streams.connect import Guarantee, SinkBlock, SinkFencedError
from streams.core.topic import Topic
from streams.testing import sink_kit
from tests.connect.targets import NAMES, target


@pytest.mark.case
@pytest.mark.parametrize("name", NAMES)
def test_our_sinks_withstand_a_fault_at_each_step(name, tmp_path):
    with target(name, tmp_path) as found:
        report = sink_kit.check(found.make, found.read, is_keyed=found.is_keyed, kills=1)

    assert len(report.faults) == len(sink_kit.SinkStep) - 1
    assert report.records >= 40 * len(report.faults)
    if report.guarantee is Guarantee.EXACTLY_ONCE:
        assert report.duplicates == 0
        assert report.fenced == (1 if name == "notebook" else 2)
    else:
        assert report.duplicates > 0


@pytest.mark.killed
@pytest.mark.seeds("name", ["postgres-append", "delta", "parquet"])
def test_our_sinks_withstand_processes_that_are_killed(name, tmp_path):
    with target(name, tmp_path) as found:
        report = sink_kit.check(found.make, found.read, kills=2, by="process")

    assert report.faults[sink_kit.SinkStep.WITHIN_COMMIT] == 2
    assert report.duplicates == 0


@define
class Shelf:
    """A target in memory, as a database with transactions is."""

    rows: list[tuple[Any, Any]] = field(factory=list)
    positions: dict[int, int] = field(factory=dict)

    def read(self) -> list[tuple[Any, Any]]:
        return list(self.rows)


class ShelfSink:
    """Appends to a shelf, exactly once."""

    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(self, shelf: Shelf) -> None:
        self.shelf, self.blocks = shelf, list[SinkBlock[Any, Any]]()

    def open(self, connector: str, topic: Topic[Any, Any], partitions: Sequence[int]) -> Mapping[int, int]:
        self.blocks.clear()
        found = {it: self.shelf.positions[it] for it in partitions if it in self.shelf.positions}
        self.expected = {it: found.get(it) for it in partitions}
        return found

    def write(self, block: SinkBlock[Any, Any]) -> None:
        self.blocks.append(block)

    def commit(self) -> None:
        for block in self.blocks:
            if self.shelf.positions.get(block.partition) != self.expected[block.partition]:
                raise SinkFencedError("overtaken")
        for block in self.blocks:
            self.put(block)
        self.blocks.clear()

    def put(self, block: SinkBlock[Any, Any]) -> None:
        self.shelf.rows += zip(block.keys, block.values, strict=True)
        self.shelf.positions[block.partition] = self.expected[block.partition] = block.next_offset

    def abort(self) -> None:
        self.blocks.clear()

    def is_retriable(self, error: Exception) -> bool:
        return False

    def close(self) -> None:
        pass


class WithoutPositions(ShelfSink):
    """Claims to be exactly once, and knows no positions."""

    def open(self, connector: str, topic: Topic[Any, Any], partitions: Sequence[int]) -> Mapping[int, int]:
        super().open(connector, topic, partitions)
        return {}


class WithoutFence(ShelfSink):
    """Does not compare the positions."""

    def commit(self) -> None:
        for block in self.blocks:
            self.put(block)
        self.blocks.clear()


class WritesAtOnce(ShelfSink):
    """Makes rows visible before the commit, and stores the position with it."""

    def write(self, block: SinkBlock[Any, Any]) -> None:
        super().write(block)
        self.shelf.rows += zip(block.keys, block.values, strict=True)

    def put(self, block: SinkBlock[Any, Any]) -> None:
        self.shelf.positions[block.partition] = self.expected[block.partition] = block.next_offset


class KeepsAborted(ShelfSink):
    """Writes blocks that were aborted with the next commit, also after it was opened again."""

    def open(self, connector: str, topic: Topic[Any, Any], partitions: Sequence[int]) -> Mapping[int, int]:
        kept = list(self.blocks)
        found = super().open(connector, topic, partitions)
        self.blocks += [block for block in kept if block.partition in self.expected]
        return found

    def abort(self) -> None:
        pass


class LosesTheLast(ShelfSink):
    """Stores the position after the block, and all but its last row."""

    guarantee = Guarantee.AT_LEAST_ONCE

    def put(self, block: SinkBlock[Any, Any]) -> None:
        super().put(block)
        if len(block) > 3:
            self.shelf.rows.pop()


class ForgetsEmptyBlocks(ShelfSink):
    def write(self, block: SinkBlock[Any, Any]) -> None:
        if len(block):
            super().write(block)


class RetriesEverything(ShelfSink):
    def is_retriable(self, error: Exception) -> bool:
        return True


class FailsToClose(ShelfSink):
    def close(self) -> None:
        del self.expected


class AllPartitions(ShelfSink):
    def open(self, connector: str, topic: Topic[Any, Any], partitions: Sequence[int]) -> Mapping[int, int]:
        super().open(connector, topic, partitions)
        return {it: self.shelf.positions.get(it, 0) for it in (0, *partitions)}


class Rejects(ShelfSink):
    def commit(self) -> None:
        if any(value == 100 for block in self.blocks for value in block.values):
            raise ValueError("no such column")
        super().commit()


@pytest.mark.case
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (WithoutPositions, r"not exactly once, after 1 faults after commit: \d+ rows are too many, such as"),
        (WithoutFence, "an exactly-once sink raises SinkFencedError"),
        (WritesAtOnce, "not exactly once, after 1 faults after write: .* too many"),
        (KeepsAborted, "the worker has ended with SinkFencedError|too many"),
        (LosesTheLast, r"not at least once, after 1 faults before open: \d+ rows are missing"),
        (ForgetsEmptyBlocks, r"the position \d+, not \d+, after a block without records was committed"),
        (RetriesEverything, r"is_retriable\(ConfigError\('a setting is wrong'\)\) is not False"),
        (FailsToClose, r"close\(\) fails before open\(\)"),
        (AllPartitions, r"open\(\) for no partitions returns positions"),
        (Rejects, "has ended with ValueError: no such column"),
    ],
    ids=lambda it: getattr(it, "__name__", ""),
)
def test_what_is_wrong_is_found(kind, message):
    shelf = Shelf()

    with pytest.raises(sink_kit.SinkKitError, match=message):
        sink_kit.check(lambda: kind(shelf), shelf.read, kills=1)


@pytest.mark.slow
def test_a_sink_in_memory_passes_by_exceptions_and_fails_by_processes(tmp_path):
    """The shelf of a killed process is gone with its rows, and a process that fails has its words in the error."""
    shelf = Shelf()
    assert sink_kit.check(lambda: ShelfSink(shelf), shelf.read, kills=1).fenced == 2

    class Broken(ShelfSink):
        def __init__(self, shelf: Shelf) -> None:
            raise ValueError("no such table")

    with pytest.raises(sink_kit.SinkKitError, match=r"after 1 faults before open: .* missing"):
        sink_kit.check(lambda: ShelfSink(Shelf()), list, kills=1, by="process")
    made = iter([ShelfSink])
    with pytest.raises(sink_kit.SinkKitError, match=r"before open: .* status 1 (.|\n)*ValueError: no such table"):
        sink_kit.check(lambda: next(made, Broken)(shelf), list, kills=1, by="process")
    with pytest.raises(ValueError, match="by is 'exception' or 'process'"):
        sink_kit.check(lambda: ShelfSink(shelf), list, by="magic")


@pytest.mark.slow
def test_an_idempotent_sink_has_the_last_value_of_each_key_and_other_types_are_written():
    table: dict[Any, Any] = {}

    class TableSink(ShelfSink):
        guarantee = Guarantee.IDEMPOTENT

        def open(self, connector: str, topic: Topic[Any, Any], partitions: Sequence[int]) -> Mapping[int, int]:
            self.blocks.clear()
            return {}

        def commit(self) -> None:
            for block in self.blocks:
                table.update(zip(block.keys, block.values, strict=True))
            self.blocks.clear()

    prices = Topic("prices", key=int, value=float)
    report = sink_kit.check(
        lambda: TableSink(Shelf()),
        lambda: [row for row in table.items() if row[1] is not None],
        topic=prices,
        record=lambda number: (number % 10, None if number % 7 == 3 else number / 2),
        kills=1,
    )

    assert report.guarantee is Guarantee.IDEMPOTENT
    assert report.fenced == 0
