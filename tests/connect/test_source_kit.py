"""The kit for sources: ours pass it, and each way in which a source can be wrong is found."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from streams.connect import SourceBlock
from streams.testing import source_kit
from tests.connect.origins import NAMES, origin


@pytest.mark.slow
@pytest.mark.seeds("name", NAMES, 2)
def test_our_sources_withstand_a_fault_at_each_step(name, tmp_path):
    with origin(name, tmp_path) as found:
        report = source_kit.check(found.make, found.add, topic=found.topic, kills=1)

    assert len(report.faults) == len(source_kit.SourceStep) - 2
    assert report.records >= 5 * len(report.faults)


@pytest.mark.killed
@pytest.mark.seeds("name", NAMES)
def test_our_sources_withstand_processes_that_are_killed(name, tmp_path):
    with origin(name, tmp_path) as found:
        report = source_kit.check(found.make, found.add, topic=found.topic, kills=1, by="process")

    assert report.faults[source_kit.SourceStep.WITHIN_COMMIT] == 1
    assert len(report.faults) == 8


class ShelfSource:
    """Reads a list, two values with each poll."""

    def __init__(self, shelf: list[int]) -> None:
        self.shelf, self.at = shelf, 0

    def open(self, connector: str, topic: Any, positions: Mapping[str, Any]) -> None:
        self.at = positions.get("all", 0)

    def poll(self, timeout_ms: int) -> Sequence[SourceBlock[str, int]]:
        found = self.shelf[self.at : self.at + 2]
        self.at += len(found)
        return [SourceBlock("all", self.at, [f"key-{value % 3}" for value in found], found)] if found else []

    def committed(self, positions: Mapping[str, Any]) -> None:
        pass

    def is_retriable(self, error: Exception) -> bool:
        return False

    def wakeup(self) -> None:
        pass

    def close(self) -> None:
        pass


class WithoutPositions(ShelfSource):
    def open(self, connector: str, topic: Any, positions: Mapping[str, Any]) -> None:
        self.at = 0


class Shelf(list[int]):
    """What a source reads; ``on_loss`` is called when what it has removed is not in the topic."""

    taken = 0

    def on_loss(self) -> None:
        pass


class DiscardsWhatItReads(ShelfSource):
    """Removes from the system what it has returned, before it is in the topic."""

    shelf: Shelf

    def open(self, connector: str, topic: Any, positions: Mapping[str, Any]) -> None:
        super().open(connector, topic, positions)
        if self.shelf.taken:
            self.shelf.on_loss()

    def committed(self, positions: Mapping[str, Any]) -> None:
        self.shelf.taken = 0

    def poll(self, timeout_ms: int) -> Sequence[SourceBlock[str, int]]:
        blocks = super().poll(timeout_ms)
        self.at = 0
        for block in blocks:
            del self.shelf[: len(block)]
            self.shelf.taken += len(block)
        return [SourceBlock("all", 0, block.keys, block.values) for block in blocks]


class Backwards(ShelfSource):
    def poll(self, timeout_ms: int) -> Sequence[SourceBlock[str, int]]:
        found = self.shelf[self.at :]
        self.at += len(found)
        return [SourceBlock("all", self.at, ["key"] * len(found), found[::-1])] if found else []


class RetriesEverything(ShelfSource):
    def is_retriable(self, error: Exception) -> bool:
        return True


class Rejects(ShelfSource):
    def poll(self, timeout_ms: int) -> Sequence[SourceBlock[str, int]]:
        if self.at > 50:
            raise ValueError("no such column")
        return super().poll(timeout_ms)


class FailsToClose(ShelfSource):
    def close(self) -> None:
        raise OSError("it is not open")


def added(shelf, number, key=lambda number: f"key-{number % 3}"):
    shelf.append(number)
    return [(key(number), number)]


@pytest.mark.case
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (WithoutPositions, r"not exactly once, after 1 faults after open: \d+ records are too many, such as"),
        (DiscardsWhatItReads, r"not exactly once, after 1 faults after poll: \d+ records are missing, such as"),
        (RetriesEverything, r"is_retriable.ConfigError.* is not False"),
        (Rejects, "has ended with ValueError: no such column"),
        (FailsToClose, r"close\(\) fails before open\(\)"),
    ],
    ids=lambda it: getattr(it, "__name__", ""),
)
def test_what_is_wrong_is_found(kind, message, monkeypatch):
    shelf = Shelf()
    # What is lost never comes, so that the kit waits for as long as it is patient; until then it waits for the source.
    monkeypatch.setattr(Shelf, "on_loss", lambda _: monkeypatch.setattr("streams.testing.kit.victims.PATIENCE_MS", 100))

    with pytest.raises(source_kit.SourceKitError, match=message):
        source_kit.check(lambda: kind(shelf), lambda number: added(shelf, number), kills=1)


@pytest.mark.slow
def test_records_of_a_key_in_another_order_are_found():
    shelf: list[int] = []
    with pytest.raises(source_kit.SourceKitError, match="records of a key are in another order"):
        source_kit.check(lambda: Backwards(shelf), lambda number: added(shelf, number, lambda _: "key"), kills=1)


@pytest.mark.slow
def test_a_source_of_a_list_passes():
    shelf: list[int] = []
    report = source_kit.check(lambda: ShelfSource(shelf), lambda number: added(shelf, number), kills=2)

    assert set(report.faults.values()) == {2}
    with pytest.raises(ValueError, match="by is 'exception' or 'process'"):
        source_kit.check(lambda: ShelfSource(shelf), list, by="magic")
