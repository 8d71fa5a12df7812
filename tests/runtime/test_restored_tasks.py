"""Tasks whose stores are restored from changelogs prepare when these are complete, not before."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from streams import Processor, Record, StreamsBuilder, Suppressed, Topic, key_value_store
from streams.bounded import run_bounded
from streams.core.blocks.records import Block

numbers = Topic("numbers", key=str, value=int)
out = Topic("out", key=str, value=int)


@pytest.fixture
def run(tmp_path):
    """Run a topology over rows, always with the same broker; stores are in memory, so each run restores them."""

    def run(topology, *rows: tuple[str, int | None, int]) -> list[tuple[Any, Any, int]]:
        def read(count: int, skip: int) -> Iterator[list[tuple[int, Block]]]:
            keys = [numbers.key_serde.serialize(key) for key, _, _ in rows]
            values = [numbers.value_serde.serialize(value) for _, value, _ in rows]
            yield [(0, Block(keys, values, [time for _, _, time in rows], None, range(len(rows))))]

        settings = {"default_store": "in_memory"}
        with run_bounded(
            topology, {"numbers": read}, application_id="app", state_dir=tmp_path, settings=settings
        ) as finished:
            return [
                (out.key_serde.deserialize(key), out.value_serde.deserialize(value), time)
                for _, block in finished.read_output("out")
                for key, value, time in zip(block.keys, block.values, block.timestamps, strict=True)
            ]

    return run


def test_change_held_back_before_a_restart_is_sent_when_its_time_is_over(run):
    """The order in which changes wait is not in the changelog: it is made from what was restored."""

    def topology(builder: StreamsBuilder) -> None:
        held = Suppressed.until_time_limit(timedelta(milliseconds=10))
        builder.table(numbers).suppress(held).to_stream().to(out)

    assert run(topology, ("ann", 1, 100)) == []
    assert run(topology, ("ann", 1, 100), ("bob", 2, 110)) == [("ann", 1, 100)]


def test_stores_are_restored_before_init_of_a_processor(run):
    """The processor forwards the number of keys that its store had in init."""

    class Counted(Processor[str, int, str, int]):
        known = key_value_store(str, int)

        def init(self, context: Any) -> None:
            self.found = len(list(self.known.all()))

        def process(self, record: Record[str, int]) -> None:
            self.known.put(record.key, record.value)
            self.context.forward(record.key, self.found)

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(numbers).process(Counted).to(out)

    first = ("ann", 1, 100), ("bob", 1, 101)
    assert run(topology, *first) == [("ann", 0, 100), ("bob", 0, 101)]
    assert run(topology, *first, ("cid", 1, 102))[-1] == ("cid", 2, 102)
