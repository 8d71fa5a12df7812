"""Ways to run a plan: the test driver and bounded runs; what comes out in forms to compare."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from attrs import frozen

from streams import StreamsConfig, Topology, build_topology
from streams.bounded import run_bounded
from streams.core.blocks.partitioning import partition_for
from streams.core.blocks.records import Block
from streams.state import StateDirectory, Store, open_store
from streams.testing import TopologyTestDriver
from streams.topology.subtopologies import sub_topologies
from tests.properties.plans import TOPICS, Plan
from tests.properties.strategies import Row

#: Key, value, timestamp.
Record = tuple[bytes | None, bytes | None, int]
#: The last value of each key; deleted ones are not there.
Table = dict[bytes | None, bytes]

APPLICATION = "app"


def _raw(row: Row) -> tuple[bytes | None, bytes | None]:
    topic = TOPICS[row.topic]
    return topic.key_serde.serialize(row.key), topic.value_serde.serialize(row.value)


def placed(rows: Sequence[Row], count: int) -> Iterator[tuple[Row, int]]:
    """Yield rows with their partitions; those without key go round."""
    for number, row in enumerate(rows):
        key, _ = _raw(row)
        yield row, number % count if key is None else partition_for(key, count)


def contents(store: Store) -> list[Record]:
    """Return what a store holds, as changelog records in the order of keys."""
    return [row for block in store.snapshot_blocks() for row in _records(block)]


def compacted(records: Iterable[Record]) -> Table:
    """Return the last value of each key, without keys that were deleted."""
    last = {key: value for key, value, _ in records}
    return {key: value for key, value in last.items() if value is not None}


def by_key(records: Iterable[Record]) -> dict[bytes | None, list[Record]]:
    """Return the records of each key in their order."""
    result: dict[bytes | None, list[Record]] = {}
    for record in records:
        result.setdefault(record[0], []).append(record)
    return result


def _records(block: Block) -> Iterator[Record]:
    return zip(block.keys, block.values, block.timestamps, strict=True)


# The test driver.


@frozen
class Driven:
    """What a run in the test driver wrote to each topic, and what its stores hold, by store and partition."""

    outputs: dict[str, list[Record]]
    changelogs: dict[str, list[Record]]
    stores: dict[tuple[str, int], list[Record]]
    topology: Topology


def drive(
    plan: Plan, rows: Sequence[Row], *, partitions: int = 1, pause_ms: int = 0, rest_ms: int = 0, **settings: Any
) -> Driven:
    """Run a plan in the test driver, record by record, with pauses between records and a rest behind the last one."""
    with TopologyTestDriver(plan, partitions=partitions, application_id=APPLICATION, **settings) as driver:
        for row, partition in placed(rows, partitions):
            driver.pipe(TOPICS[row.topic], row.value, key=row.key, timestamp_ms=row.timestamp_ms, partition=partition)
            driver.advance_wall_clock(pause_ms)
        driver.advance_wall_clock(rest_ms)
        written = {
            topic: [(record.key, record.value, record.timestamp_ms) for record in driver.read_bytes(topic)]
            for topic in driver.topics()
        }
        stores = {}
        for sub in sub_topologies(driver.topology):
            for name in sub.stores:
                for partition in range(partitions):
                    stores[name, partition] = contents(driver.store(name, partition))
        changelogs = {
            name: written.get(f"{APPLICATION}-{name}-changelog", [])
            for name, spec in driver.topology.stores.items()
            if spec.has_changelog
        }
        return Driven({topic: written.get(topic, []) for topic in plan.outputs}, changelogs, stores, driver.topology)


# Bounded runs.


@frozen
class Bounded:
    """What a bounded run wrote, by topic and partition."""

    topics: Mapping[str, Mapping[int, list[Record]]]

    def outputs(self, plan: Plan) -> dict[str, Mapping[int, list[Record]]]:
        """Return what was written to the topics of the plan."""
        return {topic: self.topics[topic] for topic in plan.outputs}

    def joined(self, topic: str) -> list[Record]:
        """Return what was written to a topic, partition after partition."""
        return [record for _, records in sorted(self.topics.get(topic, {}).items()) for record in records]


def _reader(rows: Sequence[Row], topic: str, batch: int) -> Any:
    """Return the reader of a topic's rows, ``batch`` of them at a time."""

    def read(count: int, skip: int) -> Iterator[list[tuple[int, Block]]]:
        chosen = [(row, partition) for row, partition in placed(rows, count) if row.topic == topic]
        for start in range(skip, len(chosen), batch):
            blocks = []
            for number in range(count):
                mine = [row for row, partition in chosen[start : start + batch] if partition == number]
                if mine:
                    keys, values = zip(*map(_raw, mine), strict=True)
                    times = [row.timestamp_ms for row in mine]
                    blocks.append((number, Block(keys, values, times, None, range(len(mine)))))
            yield blocks

    return read


def run(
    plan: Plan,
    rows: Sequence[Row],
    *,
    partitions: int = 1,
    state_dir: Path | None = None,
    batch: int = 1000,
    **settings: Any,
) -> Bounded:
    """Run a plan over all rows and to its end."""
    with run_bounded(
        plan,
        {topic: _reader(rows, topic, batch) for topic in plan.inputs},
        application_id=APPLICATION,
        partitions=partitions,
        state_dir=state_dir,
        settings={"poll_ms": 5, **settings},
    ) as finished:
        topics: dict[str, dict[int, list[Record]]] = {
            topic: {number: [] for number in range(count)} for topic, count in finished.broker.topics().items()
        }
        for topic, partitioned in topics.items():
            for number, block in finished.read_output(topic):
                partitioned[number] += _records(block)
        return Bounded(topics)


def stores_on_disk(plan: Plan, state_dir: Path, **settings: Any) -> dict[tuple[str, str], list[Record]]:
    """Return what the stores hold that a bounded run left in its state directory, by task and store."""
    topology = build_topology(plan, StreamsConfig.of(application_id=APPLICATION, **settings))
    directory = StateDirectory.of(state_dir / "state", APPLICATION)
    subs = {sub.id: sub for sub in sub_topologies(topology)}
    result = {}
    for task in directory.tasks():
        for name in subs[task.sub_topology].stores:
            store = open_store(topology.stores[name], directory.store_path(task, name), default_engine="rocksdb")
            with closing(store):
                result[str(task), name] = contents(store)
    return result
