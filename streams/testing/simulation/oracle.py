"""What a bounded run makes of the inputs of a simulation: the outputs of each key, in order."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import cast

from streams.bounded import RowReader, run_bounded
from streams.core.blocks.partitioning import partitions_for
from streams.core.blocks.records import Block
from streams.core.errors import ConfigError
from streams.core.settings.settings import Settings
from streams.testing.simulation.conditions import Row, Scenario
from streams.testing.simulation.outcome import KeyRows, OutputPlace


def bounded_rows(scenario: Scenario, partitions: int, outputs: Iterable[str]) -> dict[OutputPlace, KeyRows]:
    """Run the inputs as files, and return the records of each output topic by key.

    ``partitions`` is the partition count of topics that do not declare one.

    Raises:
        ConfigError: an input has no key, so that its partition is not certain.
        StreamsError: the bounded run has failed.
    """
    rows: dict[str, list[Row]] = {}
    for row in scenario.rows:
        rows.setdefault(row[0].name, []).append(row)
    inputs: dict[str, RowReader] = {name: partial(_blocks, own) for name, own in rows.items()}
    result: dict[OutputPlace, KeyRows] = {}
    with run_bounded(
        scenario.topology,
        inputs,
        application_id="sim",
        partitions=partitions,
        settings=cast(Settings, {**scenario.settings, "poll_ms": 5}),
    ) as finished:
        names = finished.broker.topics()
        for topic in outputs:
            written = result.setdefault(OutputPlace("topic", topic), {})
            for _, block in finished.read_output(topic) if topic in names else ():
                for key, value, time_ms in zip(block.keys, block.values, block.timestamps, strict=True):
                    written.setdefault(key, []).append((value, time_ms))
    return result


def _blocks(rows: Sequence[Row], count: int, skip: int) -> Iterator[list[tuple[int, Block]]]:
    columns: dict[int, list[tuple[bytes, bytes | None, int]]] = {}
    for topic, key, value, time_ms in rows[skip:]:
        raw = topic.key_serde.serialize(key)
        if raw is None:
            raise ConfigError(f"simulate(backlog=True) got a record of topic {topic.name!r} without a key")
        [number] = partitions_for([raw], count, topic.key_serde.key_suffix)
        columns.setdefault(number, []).append((raw, topic.value_serde.serialize(value), time_ms))
    blocks = []
    for number, own in columns.items():
        keys, values, times = zip(*own, strict=True)
        blocks.append((number, Block(keys, values, times, None, range(len(own)))))
    yield blocks
