"""The state of a replay between two slices, and the manifests that store it.

A manifest is written last and atomically: a file that no manifest lists is not part of the replay.  Files of
a failed attempt are deleted when the next manifest is written.
"""

import json
import zlib
from base64 import b85decode, b85encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from attrs import define, field

from streams.core.blocks.records import TaskId, TopicPartition
from streams.core.metrics import Tally
from streams.replay.calls.work import StageReport, StoreRef
from streams.replay.errors import ReplayError
from streams.replay.storage.extents import SourceHistory
from streams.replay.storage.lanes import LaneTable
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Extent, Kind, ranges_of
from streams.runtime import ApplicationPlan

#: File name of the manifest, which makes a folder valid.
MANIFEST = "MANIFEST.json"
#: Format 7: records that tasks write have places.
FORMAT = 7
#: Bytes of JSON above which the content of a manifest is compressed.
_PLAIN_BYTES = 256 * 1024
#: Placeholder of the checksum while it is computed.
_UNSEALED = "0" * 32

#: Output records by task, for one partition of a topic: (topic, partition, producer) -> extents.
Outputs = dict[tuple[TopicPartition, str], list[Extent]]


@define
class ReplayState:
    """The positions and stores of all tasks, and the unread records of repartition topics."""

    positions: dict[TaskId, dict[TopicPartition, int]] = field(factory=dict)
    checkpoints: dict[TaskId, Mapping[str, Any]] = field(factory=dict)
    stores: dict[TaskId, dict[str, StoreRef]] = field(factory=dict)
    #: Unread records of topics that the topology both writes and reads, by lane.
    lanes: dict[TopicPartition, list[Extent]] = field(factory=dict)
    #: The lanes of repartition topics, by the broker name of the lanes.
    tables: dict[str, LaneTable] = field(factory=dict)
    #: Next offset of each partition that a task writes, other than lanes of repartition topics.
    ends: dict[TaskId, dict[tuple[Kind, TopicPartition], int]] = field(factory=dict)
    counters: dict[TaskId, dict[Tally, int]] = field(factory=dict)
    global_stores: dict[str, StoreRef] = field(factory=dict)
    #: The first dropped record, by node and reason.
    examples: dict[tuple[str, str], str] = field(factory=dict)

    def copy(self) -> "ReplayState":
        """Return an independent copy of this state."""
        return ReplayState(
            {task: dict(values) for task, values in self.positions.items()},
            dict(self.checkpoints),
            {task: dict(values) for task, values in self.stores.items()},
            {lane: list(extents) for lane, extents in self.lanes.items()},
            {topic: table.copy() for topic, table in self.tables.items()},
            {task: dict(values) for task, values in self.ends.items()},
            {task: dict(values) for task, values in self.counters.items()},
            dict(self.global_stores),
            dict(self.examples),
        )

    def take(self, report: StageReport, outputs: Outputs, plan: ApplicationPlan) -> None:
        """Apply the report of a call: advance the positions of its tasks, and add their records to ``outputs``."""
        for task in report.tasks:
            self.positions[task.task_id] = dict(task.positions)
            self.checkpoints[task.task_id] = task.checkpoint
            self.stores[task.task_id] = dict(task.stores)
            self.ends[task.task_id] = dict(task.ends)
            counters = self.counters.setdefault(task.task_id, {})
            for name, count in task.counters.items():
                counters[name] = name.merged(counters.get(name, 0), count)
            self.examples = {**task.examples, **self.examples}
            for first, positions in task.lane_positions.items():
                self._table(first.topic).read(first.partition, positions)
            of_cycle: dict[str, list[tuple[int, Extent]]] = {}
            for kind, partition, extent in task.written:
                if kind == "repartition":
                    of_cycle.setdefault(partition.topic, []).append((partition.partition, extent))
                else:
                    logical = plan.logical(partition)
                    outputs.setdefault((logical, str(task.task_id)), []).append(extent)
                if kind == "through":
                    self.lanes.setdefault(partition, []).append(extent)
            for topic, items in of_cycle.items():
                self._table(topic).add(ranges_of(items))
        for topic, ranges in report.lanes.items():
            self._table(topic).add(ranges)

    def _table(self, topic: str) -> LaneTable:
        if topic not in self.tables:
            self.tables[topic] = LaneTable()
        return self.tables[topic]

    def forget_read(self, reader_of: Callable[[TopicPartition], TaskId | None]) -> None:
        """Drop the records of lanes that have been read; ``reader_of`` maps a partition to its reader."""
        for table in self.tables.values():
            table.forget_read()
        for lane, extents in list(self.lanes.items()):
            reader = reader_of(lane)
            position = 0 if reader is None else self.positions.get(reader, {}).get(lane, 0)
            rest = [extent for extent in extents if extent.last >= position]
            if rest:
                self.lanes[lane] = rest
            else:
                del self.lanes[lane]

    def tallies(self) -> dict[Tally, int]:
        """Return the counters over all tasks."""
        totals: dict[Tally, int] = {}
        for counters in self.counters.values():
            for tally, count in counters.items():
                totals[tally] = tally.merged(totals.get(tally, 0), count)
        return totals

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON-compatible values."""
        return {
            "tasks": {
                str(task): {
                    "positions": _columns([*partition, offset] for partition, offset in positions.items()),
                    "checkpoint": {
                        **self.checkpoints[task],
                        "partition_times": _columns(self.checkpoints[task]["partition_times"]),
                    },
                    "stores": {name: store_to_json(ref) for name, ref in self.stores[task].items()},
                    "ends": [[kind, *lane, offset] for (kind, lane), offset in self.ends[task].items()],
                }
                for task, positions in sorted(self.positions.items())
            },
            "lanes": [[*lane, list(map(list, extents))] for lane, extents in sorted(self.lanes.items())],
            "tables": {topic: table.to_json() for topic, table in sorted(self.tables.items())},
            "counters": _counters_to_json(self.counters),
            "examples": [[*place, text] for place, text in sorted(self.examples.items())],
            "global_stores": {name: store_to_json(ref) for name, ref in self.global_stores.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ReplayState":
        """Return the state from the values of ``to_json``."""
        state = cls()
        for name, fields in data["tasks"].items():
            task = task_of(name)
            state.positions[task] = {
                TopicPartition(topic, at): offset for topic, at, offset in _rows(fields["positions"])
            }
            times = list(_rows(fields["checkpoint"]["partition_times"]))
            state.checkpoints[task] = {**fields["checkpoint"], "partition_times": times}
            state.stores[task] = {store: store_from_json(ref) for store, ref in fields["stores"].items()}
            state.ends[task] = {(kind, TopicPartition(topic, at)): end for kind, topic, at, end in fields["ends"]}
        for topic, number, extents in data["lanes"]:
            state.lanes[TopicPartition(topic, number)] = [Extent(*extent) for extent in extents]
        state.tables = {topic: LaneTable.from_json(table) for topic, table in data["tables"].items()}
        for *tally, counts in data["counters"]:
            for name, count in counts.items():
                state.counters.setdefault(task_of(name), {})[Tally(*tally)] = count
        state.examples = {(node, reason): text for node, reason, text in data.get("examples", ())}
        state.global_stores = {name: store_from_json(ref) for name, ref in data["global_stores"].items()}
        return state

    def files(self) -> set[str]:
        """Return the names of the files with the contents of stores and of unread repartition records."""
        extents = [extent for group in self.lanes.values() for extent in group]
        refs = [ref for group in self.stores.values() for ref in group.values()]
        extents += [extent for ref in [*refs, *self.global_stores.values()] for extent in ref.every_extent]
        files = {extent.file for extent in extents}
        return files.union(*(table.ranges.files for table in self.tables.values()))


def task_of(name: str) -> TaskId:
    """Parse a task ID such as ``1_20``: the number of the sub-topology and the partition.

    >>> task_of("1_20")
    TaskId(sub_topology=1, partition=20)
    """
    sub, _, partition = name.partition("_")
    return TaskId(int(sub), int(partition))


def store_to_json(ref: StoreRef) -> dict[str, Any]:
    """Return the reference to a store as JSON-compatible values."""
    return {
        "extents": list(map(list, ref.extents)),
        "carried": {name: data.hex() for name, data in ref.carried.items()},
        "changes": [store_to_json(part) for part in ref.changes],
    }


def store_from_json(data: Mapping[str, Any]) -> StoreRef:
    """Return the reference to a store from the values of ``store_to_json``."""
    carried = {name: bytes.fromhex(text) for name, text in data["carried"].items()}
    changes = tuple(map(store_from_json, data.get("changes", ())))
    return StoreRef(tuple(Extent(*extent) for extent in data["extents"]), carried, changes)


def outputs_to_json(outputs: Outputs) -> list[Any]:
    """Return outputs as JSON-compatible values."""
    return [[*at, producer, list(map(list, extents))] for (at, producer), extents in sorted(outputs.items())]


def outputs_from_json(data: list[Any]) -> Outputs:
    """Return outputs from the values of ``outputs_to_json``."""
    return {
        (TopicPartition(topic, number), producer): [Extent(*extent) for extent in extents]
        for topic, number, producer, extents in data
    }


def _counters_to_json(counters: Mapping[TaskId, Mapping[Tally, int]]) -> list[list[Any]]:
    """Return counters as JSON-compatible values: for each name, the counts by task."""
    by_name: dict[Tally, dict[str, int]] = {}
    for task, tallies in sorted(counters.items()):
        for tally, count in tallies.items():
            by_name.setdefault(tally, {})[str(task)] = count
    return [[*tally, counts] for tally, counts in sorted(by_name.items())]


def _columns(rows: Iterable[Sequence[Any]]) -> dict[str, list[list[int]]]:
    """Return rows of (topic, partition, number) as two columns for each topic, which needs less space in a manifest."""
    columns: dict[str, list[list[int]]] = {}
    for topic, partition, number in rows:
        partitions, numbers = columns.setdefault(topic, [[], []])
        partitions.append(partition)
        numbers.append(number)
    return columns


def _rows(columns: Mapping[str, Sequence[Sequence[int]]]) -> Iterator[list[Any]]:
    """Yield the rows (topic, partition, number) of the values of ``_columns``."""
    for topic, (partitions, numbers) in columns.items():
        for partition, number in zip(partitions, numbers, strict=True):
            yield [topic, partition, number]


def write_manifest(folder: Place, content: Mapping[str, Any]) -> None:
    """Write the manifest of a folder, with format and checksum; a folder without a manifest is not valid.

    Large content is compressed.

    Raises:
        ReplayError: the manifest cannot be written.
    """
    # Without indentation, which Python's slow encoder would write: each field is a line.
    fields = {name: json.dumps(value) for name, value in content.items()}
    if sum(map(len, fields.values())) > _PLAIN_BYTES:
        plain = json.dumps(content).encode()
        fields = {"kind": json.dumps(content.get("kind")), "packed": f'"{b85encode(zlib.compress(plain)).decode()}"'}
    fields = {"format": str(FORMAT), "checksum": f'"{_UNSEALED}"', **fields}
    data = "".join(["{", ",\n ".join(f'"{name}": {text}' for name, text in fields.items()), "}"]).encode()
    folder.child(MANIFEST).write(data.replace(_UNSEALED.encode(), _checksum(data), 1))


def identify(history: SourceHistory, inputs: Sequence[Any]) -> str:
    """Return the ID of a replay; the first call, after its history has been read, creates it.

    It is derived from the arguments of the replay and its history, of which ``inputs`` describes the files: the same
    replay in another folder has the same ID.
    """
    folder = history.segments.root
    own = read_manifest(folder)
    assert own is not None
    if not own["id"]:
        partitions = [
            (*at, extents.rows, *((extents[0].lowest_ms, extents[-1].highest_ms) if extents else ()))
            for at, extents in sorted(history.extents.items())
        ]
        own["id"] = blake2b(json.dumps([own, partitions, inputs]).encode(), digest_size=6).hexdigest()
        write_manifest(folder, own)
    return str(own["id"])


def read_manifest(folder: Place) -> dict[str, Any] | None:
    """Return the content of the manifest of a folder, or None if there is no manifest.

    Raises:
        ReplayError: the manifest is damaged, or has another format.
    """
    place = folder.child(MANIFEST)
    data = place.read_if_exists()
    if data is None:
        return None
    try:
        content = json.loads(data)
        version = content["format"]
        checksum = str(content.get("checksum", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ReplayError(
            f"{place}: is not a manifest of a replay, or is damaged: {error}; restore it from a copy of the folder, "
            "or create the folder again"
        ) from error
    if version != FORMAT and not checksum:
        raise ReplayError(f"{place}: has format {version}, this version reads {FORMAT}; create the folder again")
    if not checksum or _checksum(data.replace(checksum.encode(), _UNSEALED.encode(), 1)) != checksum.encode():
        raise ReplayError(
            f"{place}: is damaged: its bytes are not those that were written; restore it from a copy of the folder, "
            "or create the folder again"
        )
    if version != FORMAT:
        raise ReplayError(f"{place}: has format {version}, this version reads {FORMAT}; create the folder again")
    if "packed" in content:
        unpacked: dict[str, Any] = json.loads(zlib.decompress(b85decode(content["packed"])))
        return unpacked
    return {name: value for name, value in content.items() if name not in ("format", "checksum")}


def _checksum(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).hexdigest().encode()
