"""Ways to run one topology over the same records, which must agree: partitions, slices of a replay, a broker."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen

from streams import Record, StreamsBuilder, Topic
from streams.testing import TopologyTestDriver
from streams.testing.simulation.conditions import in_order_of_topics
from streams.topology import behind_caches
from tests.replay.outcomes import Row, archived, drive, lived, quick_folder, replayed_outcome, result_of, session_of


class NoOrderError(Exception):
    """The results depend on an order that the way does not promise."""


@frozen
class Piped:
    """A topology with one output, and the records that it reads: topic, key, value, time and headers of each.

    ``compares_stores`` is false if its state depends on more than the records.
    """

    build: Callable[[StreamsBuilder], None]
    sources: Sequence[Topic[Any, Any]]
    sink: Topic[Any, Any]
    records: list[tuple[Topic[Any, Any], Any, Any, int, Any]]
    compares_stores: bool = True

    def written(self, partitions: int = 1, *, by_time: bool = False) -> list[Record[Any, Any]]:
        """Return what it writes, in a driver with so many partitions; ``by_time`` is the order of tasks on a broker.

        Raises:
            NoOrderError: two topics have records of one time.
        """
        records = self._by_time() if by_time else self.records
        with TopologyTestDriver(self.build, partitions=partitions) as driver:
            for topic, key, value, time, headers in records:
                driver.pipe(topic, value, key=key, timestamp_ms=time, headers=headers)
            return driver.read_records(self.sink)

    def _by_time(self) -> list[tuple[Topic[Any, Any], Any, Any, int, Any]]:
        topics: dict[int, set[str]] = defaultdict(set)
        timed = []
        for record in self.records:
            topic, key, value, time, _ = record
            time = topic.timestamp(value) if callable(topic.timestamp) and value is not None else time
            topics[time].add(topic.name)
            timed.append((topic, key, value, time, record))
        if any(len(names) > 1 for names in topics.values()):
            raise NoOrderError("records of two topics have the same time: a broker gives them no order")
        return [record for *_, record in in_order_of_topics(timed)]  # type: ignore[arg-type, misc]

    def rows(self) -> dict[str, list[Row]]:
        """Return the records as bytes, by topic; each source is there."""
        rows: dict[str, list[Row]] = {topic.name: [] for topic in self.sources}
        for topic, key, value, time, headers in self.records:
            data = None if key is None else topic.key_serde.serialize(key)
            row = None if value is None else topic.value_serde.serialize(value)
            rows[topic.name].append(Row(0, data, row, time, tuple(headers or ())))
        return rows


def _by_key(records: list[Record[Any, Any]]) -> dict[str, list[Any]]:
    result: dict[str, list[Any]] = defaultdict(list)
    for record in records:
        result[repr(record.key)].append((record.value, record.timestamp_ms, record.headers))
    return result


def of_three_partitions(piped: Piped) -> str | None:
    """Return in what three partitions differ from one, per key."""
    one, three = _by_key(piped.written()), _by_key(piped.written(partitions=3))
    key = next((key for key in one.keys() | three.keys() if one.get(key) != three.get(key)), None)
    return None if key is None else f"{key}: {one.get(key)} in one partition, {three.get(key)} in three"


def of_three_slices(piped: Piped) -> str | None:
    """Return in what a replay in three slices differs from a bounded run, record for record."""
    rows = piped.rows()
    once = lived(piped.build, rows)
    with quick_folder() as folder:
        archives = archived(folder, rows, dict.fromkeys(rows, 1))
        session = session_of(piped.build, archives, folder / "replay", slices=3)
        drive(session)
        return once.difference(
            replayed_outcome(result_of(session)), ignores=() if piped.compares_stores else once.stores
        )


def of_a_broker(piped: Piped) -> str | None:
    """Return in what the last values of keys differ on a broker from those of the driver.

    It has a record cache, unless nodes behind one see less then: a count that comes back to 0 between two commits.

    Raises:
        NoOrderError: the records have no order on a broker.
    """
    sink = piped.sink
    builder = StreamsBuilder()
    piped.build(builder)
    size = 0 if behind_caches(builder.build()) else 10_000_000
    outputs = lived(piped.build, piped.rows(), cache_max_bytes=size).outputs.get(sink.name, {}).get(0, ())
    last = {repr(record.key): record.value for record in piped.written(by_time=True)}
    live = {
        repr(None if key is None else sink.key_serde.deserialize(key)): value and sink.value_serde.deserialize(value)
        for _, key, value, _, _ in outputs
    }
    key = next((key for key in last.keys() | live.keys() if last.get(key) != live.get(key)), None)
    return None if key is None else f"{key}: {last.get(key)} in the driver, {live.get(key)} on a broker"


#: What each topology must do alike, by name.
WAYS: Mapping[str, Callable[[Piped], str | None]] = {
    "3 partitions": of_three_partitions,
    "3 slices": of_three_slices,
    "broker": of_a_broker,
}
