"""Snapshots: the state of an application after a replay, in a self-contained folder.

The manifest is written last; a folder without a manifest is not a snapshot.  A snapshot holds the next offset of
every input, the times of tasks and operators, punctuation schedules, the contents of all stores
in their changelog format, and the records that the replay wrote to its output topics.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from attrs import astuple, evolve, field, frozen

from streams.core.blocks.records import NO_TIMESTAMP, Block, TaskId, TopicPartition
from streams.core.clock import SystemClock
from streams.core.settings.config import StreamsConfig
from streams.replay.calls.schedule import CallSchedule
from streams.replay.calls.state import (
    MANIFEST,
    Outputs,
    ReplayState,
    outputs_from_json,
    outputs_to_json,
    read_manifest,
    write_manifest,
)
from streams.replay.calls.work import StoreRef, fingerprint
from streams.replay.errors import ReplayError, SnapshotError
from streams.replay.history.growth import History
from streams.replay.history.inputs import FileMark
from streams.replay.storage.places import Place, check_seal, sealed_name
from streams.replay.storage.segments import Extent, Segments
from streams.runtime import ApplicationPlan, Checkpoint, InternalTopicPlan
from streams.state import StoreSpec
from streams.topology import Topology

#: Folder of the data files, relative to the manifest.
_DATA = "data"
#: Parts of a structure that are sets of names -> the term used in messages.
_PARTS = {"internal_topics": "repartition topic", "sources": "source topic", "sinks": "output topic"}
#: What of the structure of a store the starts and ends of its windows depend on.
_WINDOWS = {"calendar", "window_size_ms"}


@frozen
class LiveForm:
    """The topics, changelogs and offsets of an application that going live needs, so that it needs no user code."""

    internal_topics: tuple[InternalTopicPlan, ...]
    #: Store -> its changelog.
    changelogs: Mapping[str, str]
    #: Stores whose changelog is a source topic -> that topic.
    source_changelogs: Mapping[str, str]
    #: Global store -> its topics.
    global_topics: Mapping[str, tuple[str, ...]]
    #: Topics that the application both reads and writes.
    through: frozenset[str]
    #: (topic, partition, next offset, offset metadata) of every partition to commit.
    offsets: tuple[tuple[str, int, int, str], ...]

    @classmethod
    def of(cls, schedule: CallSchedule, state: ReplayState, inputs: Mapping[str, Any]) -> "LiveForm":
        """Return the live form of an application at the end of a replay.

        Offsets are included for unbounded runs and for bounded runs, in which each repartition topic has separate
        partitions for each writing task.
        """
        laned = schedule.plan
        live = ApplicationPlan.make(laned.topology, laned.config, laned.clock, schedule.application.partitions)
        offsets: dict[TopicPartition, tuple[int, str]] = {}
        for task, saved in sorted(state.checkpoints.items()):
            if task not in live.groups:
                continue
            checkpoint = Checkpoint.from_json({name: value for name, value in saved.items() if name != "wall_clock_ms"})
            for plan in (laned, live):
                times: dict[TopicPartition, int] = {}
                positions: dict[TopicPartition, int] = {}
                groups: dict[TopicPartition, int] = {}
                for item in plan.inputs(task):
                    if not laned.is_internal(item.topic) and item.topic not in inputs:
                        continue  # The topic has no history, so auto.offset.reset applies.
                    parts = laned.stored_in(TopicPartition(item.topic, item.number))
                    here = [item.partition] if plan is laned else parts
                    times[item.partition] = max(checkpoint.partition_times.get(part, NO_TIMESTAMP) for part in here)
                    groups |= {} if item.groups is None else {item.partition: item.groups}
                    is_own = laned.is_internal(item.topic)
                    positions[item.partition] = 0 if is_own else state.positions[task].get(parts[0], 0)
                metadata = evolve(checkpoint, partition_times=times, groups=groups).offset_metadata(list(positions))
                for partition, text in metadata.items():
                    if len(text) > len(offsets.get(partition, (0, ""))[1]):
                        offsets[partition] = (positions[partition], text)
        stores = [name for name, spec in laned.topology.stores.items() if spec.has_changelog]
        return cls(
            tuple(live.internal_topics()),
            {name: live.changelog(name) for name in stores},
            dict(live.topology.source_changelogs),
            {name: store.source.topics for name, store in laned.topology.global_stores.items()},
            frozenset(laned.fed),
            tuple((*partition, offset, text) for partition, (offset, text) in sorted(offsets.items())),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the live form as JSON-compatible values."""
        return {
            "internal_topics": [[topic.name, topic.partitions, dict(topic.config)] for topic in self.internal_topics],
            "changelogs": dict(self.changelogs),
            "source_changelogs": dict(self.source_changelogs),
            "global_topics": {name: list(topics) for name, topics in self.global_topics.items()},
            "through": sorted(self.through),
            "offsets": list(map(list, self.offsets)),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "LiveForm":
        """Return the live form from the values of ``to_json``."""
        return cls(
            tuple(InternalTopicPlan(*topic) for topic in data["internal_topics"]),
            data["changelogs"],
            data["source_changelogs"],
            {name: tuple(topics) for name, topics in data["global_topics"].items()},
            frozenset(data["through"]),
            tuple((topic, number, offset, text) for topic, number, offset, text in data["offsets"]),
        )


@frozen
class LastRecord:
    """The last replayed record of a partition, to check whether a topic has the same history."""

    offset: int
    timestamp_ms: int
    digest: str


def record_digest(block: Block) -> str:
    """Return the digest of the first record of a block: key, value, time and headers."""
    key, value, timestamp, headers = next(
        zip(block.keys, block.values, block.timestamps, block.headers or [()], strict=False)
    )
    content = repr((key, value, timestamp, [tuple(header) for header in headers]))
    return blake2b(content.encode(), digest_size=16).hexdigest()


@frozen(eq=False)
class Snapshot:
    """The state of an application after a replay, consistent at a point between two records.

    The paths of its files are relative to ``root``.
    """

    root: Place
    application_id: str
    #: Digest of the topics and stores of the topology (``fingerprint``).
    topology: str
    #: The structure of the topology (``structure_of``), for messages and comparison.
    structure: Mapping[str, Any]
    partitions: Mapping[str, int]
    state: ReplayState
    outputs: Outputs
    #: Topic -> {"rows", "rows_before", "order", "is_cut", "ends", "files", "last", "highest_ms"}; ``is_cut``: the
    #: replay ended before the history did.
    inputs: Mapping[str, Any]
    live: LiveForm
    id: str
    created: str
    parent: str | None = None
    #: The replay, and the position among its snapshots: the number of repairs, and of records read; "" if not known.
    replay: str = ""
    order: tuple[int, int] = (0, 0)
    #: Relative path -> (bytes, BLAKE2b); empty before it is saved.
    files: Mapping[str, tuple[int, str]] = field(factory=dict)

    @property
    def segments(self) -> Segments:
        """The files with its records."""
        return Segments(self.root)

    @classmethod
    def of(
        cls,
        schedule: CallSchedule,
        state: ReplayState,
        outputs: Outputs,
        histories: Mapping[str, History],
        parent: "Snapshot | None",
    ) -> "Snapshot":
        """Return the snapshot of a finished replay."""
        inputs: dict[str, Any] = {}
        for topic, history in histories.items():
            ends = {}
            is_cut = False
            last = {} if parent is None else dict(parent.inputs.get(topic, {}).get("last", {}))
            highest_ms = NO_TIMESTAMP if parent is None else parent.highest_ms(topic)
            for number in range(schedule.plan.partitions[topic]):
                partition = schedule.plan.feed(TopicPartition(topic, number))
                extents = schedule.history.extents.get(partition, ())
                before = parent.ends(topic).get(number, 0) if parent is not None else 0
                end = extents[-1].last + 1 if extents else before
                # Global tables are read to their end, even with ``until``.
                reached = min(
                    (positions[partition] for positions in state.positions.values() if partition in positions),
                    default=end,
                )
                is_cut = is_cut or reached < end
                ends[str(number)] = reached
                found_last, found_ms = _end_of(schedule.history.segments, extents, reached)
                highest_ms = max(highest_ms, found_ms)
                if found_last is not None:
                    last[str(number)] = astuple(found_last)
            inputs[topic] = {
                "rows_before": history.rows_before,
                "order": history.order,
                # With ``until``, records are counted: the rows that were read may be anywhere in the files.
                "rows": sum(ends.values()) if is_cut else history.rows,
                "is_cut": is_cut,
                "ends": ends,
                "files": [[mark.path, mark.size, mark.head, mark.tail, mark.rows] for mark in history.marks],
                "last": last,
                "highest_ms": highest_ms,
            }
        content = json.dumps([state.to_json(), inputs], sort_keys=True).encode()
        created = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC).isoformat(timespec="seconds")
        topology = schedule.plan.topology
        return cls(
            schedule.history.segments.root,
            schedule.plan.config.application_id,
            fingerprint(topology),
            structure_of(topology, schedule.plan.partitions),
            dict(schedule.plan.partitions),
            state,
            outputs,
            inputs,
            LiveForm.of(schedule, state, inputs),
            blake2b(content, digest_size=8).hexdigest(),
            created,
            None if parent is None else parent.id,
        )

    @classmethod
    def open(cls, folder: Place) -> "Snapshot":
        """Read the manifest of a snapshot.

        Raises:
            SnapshotError: the folder has no manifest, a damaged manifest, or a manifest of another kind.
        """
        try:
            content = read_manifest(folder)
        except ReplayError as error:
            raise SnapshotError(str(error)) from error
        if content is None:
            raise SnapshotError(f"{folder}: is not a snapshot: it has no {MANIFEST}; it may be unfinished")
        if content.get("kind") != "snapshot":
            raise SnapshotError(f"{folder}: holds a {content.get('kind')}, not a snapshot")
        return cls(
            folder,
            content["application_id"],
            content["topology"],
            content["structure"],
            content["partitions"],
            ReplayState.from_json(content["state"]),
            outputs_from_json(content["outputs"]),
            content["inputs"],
            LiveForm.from_json(content["live"]),
            content["id"],
            content["created"],
            content["parent"],
            content.get("replay", ""),
            tuple(content.get("order", (0, 0))),
            {path: (size, digest) for path, size, digest in content["files"]},
        )

    def save(self, folder: Place, *, with_outputs: bool = True) -> "Snapshot":
        """Save the snapshot in a dedicated folder; return the saved snapshot.

        Files are hard-linked where the file system supports this, otherwise copied.  An older snapshot in the folder
        stays valid until this one is complete.

        Raises:
            SnapshotError: the folder contains something other than a snapshot.
            ReplayError: nothing can be written.
        """
        folder.check_target()
        manifest = read_manifest(folder)
        if manifest is not None and manifest.get("kind") not in ("snapshot", None):
            raise SnapshotError(f"{folder}: holds a {manifest['kind']} already; choose another folder")
        folder.create_private()
        outputs = self.outputs if with_outputs else {}
        named = self.state.files() | {extent.file for extents in outputs.values() for extent in extents}
        moved: dict[str, str] = {}
        files: dict[str, list[Any]] = {}
        for file in sorted(named):
            source = self.segments.place(file)
            check_seal(source)  # Otherwise this snapshot would seal damaged bytes.
            digest = source.digest()
            target = f"{_DATA}/{sealed_name(source.name, digest)}"
            if source.uri != folder.child(target).uri:
                source.link_to(folder.child(target))
            moved[file] = target
            files[target] = [target, source.size(), digest]
        state = _moved_state(self.state, moved)
        written = {lane: [_moved(extent, moved) for extent in extents] for lane, extents in outputs.items()}
        write_manifest(
            folder,
            {
                "kind": "snapshot",
                "id": self.id,
                "application_id": self.application_id,
                "topology": self.topology,
                "created": self.created,
                "parent": self.parent,
                "replay": self.replay,
                "order": self.order,
                "structure": self.structure,
                "partitions": self.partitions,
                "inputs": self.inputs,
                "live": self.live.to_json(),
                "state": state.to_json(),
                "outputs": outputs_to_json(written),
                "files": list(files.values()),
            },
        )
        for file in folder.child(_DATA).files():
            if f"{_DATA}/{file}" not in files:
                folder.child(_DATA, file).delete()
        return Snapshot.open(folder)

    def __repr__(self) -> str:
        return f"Snapshot({str(self.root)!r}, {self.id} of {self.application_id}, {self.created})"

    # --- contents ---------------------------------------------------------------------------

    def stores(self) -> dict[str, dict[TaskId, StoreRef]]:
        """Return references to the contents of all stores, by store name and task."""
        result: dict[str, dict[TaskId, StoreRef]] = {}
        for task, refs in self.state.stores.items():
            for name, ref in refs.items():
                result.setdefault(name, {})[task] = ref
        return result

    def rows_of(self, ref: StoreRef) -> Iterator[Block]:
        """Yield the contents of a store as changelog records, sorted by key."""
        return self.segments.blocks(ref.extents)

    def marks(self, topic: str) -> list[FileMark]:
        """Return the files from which a topic was read, with their sizes and digests.

        Raises:
            SnapshotError: the replay ended within the files, so it is not known which rows were read.
        """
        entry = self.inputs.get(topic, {})
        if entry.get("is_cut") and entry["files"]:
            raise SnapshotError(
                f"{self.root}: its replay ended within the files of topic {topic!r} (until), and which of their rows "
                "are left is not known; resume the replay in its folder, or replay from an archive, which has offsets"
            )
        return [FileMark(*mark) for mark in self.inputs.get(topic, {}).get("files", ())]

    def rows(self, topic: str) -> int:
        """Return the number of rows of a topic that this replay and earlier replays have read from files."""
        return int(self.inputs.get(topic, {}).get("rows", 0))

    def rows_before(self, topic: str) -> int:
        """Return the number of rows of a topic that precede the files of this replay."""
        return int(self.inputs.get(topic, {}).get("rows_before", 0))

    def is_of_files(self, topic: str) -> bool:
        """Return whether the offsets of a topic are row numbers of files."""
        entry = self.inputs.get(topic, {})
        return bool(entry.get("files") or entry.get("rows_before"))

    def highest_ms(self, topic: str) -> int:
        """Return the highest timestamp of the replayed records of a topic, or -1 if there are none."""
        return int(self.inputs.get(topic, {}).get("highest_ms", NO_TIMESTAMP))

    def last_record(self, partition: TopicPartition) -> LastRecord | None:
        """Return the last replayed record of a partition, or None if there is none."""
        fields = self.inputs.get(partition.topic, {}).get("last", {}).get(str(partition.partition))
        return None if fields is None else LastRecord(*fields)

    def ends(self, topic: str) -> dict[int, int]:
        """Return the next offset of each partition of a topic."""
        return {int(number): end for number, end in self.inputs.get(topic, {}).get("ends", {}).items()}

    def state_for_replay(self) -> ReplayState:
        """Return the state from which another replay continues, with absolute paths."""
        whole = {file: str(self.segments.place(file)) for file in self.state.files()}
        state = _moved_state(self.state, whole)
        # Outputs start at offset 0 again; repartition topics continue at the offsets of their readers.
        state.ends = {
            task: {lane: end for lane, end in ends.items() if lane[0] != "sink"} for task, ends in state.ends.items()
        }
        state.counters = {}
        state.examples = {}
        return state

    # --- checks -------------------------------------------------------------------------------

    def check_topology(self, topology: Topology, config: StreamsConfig) -> None:
        """Check that the snapshot belongs to this application, and that its state is compatible with the topology.

        Raises:
            SnapshotError: the snapshot is incompatible with the application; the message lists the differences.
        """
        if self.application_id != config.application_id:
            raise SnapshotError(
                f"{self.root}: is a snapshot of application {self.application_id!r}, not of "
                f"{config.application_id!r}; give its own application id, or another snapshot"
            )
        now = structure_of(topology, {})
        # The fingerprint has no windows.  Entries of joins are single records, whatever the size of their windows.
        if self.topology == fingerprint(topology) and all(
            spec.retain_duplicates or not _WINDOWS & {*_changed(self.structure["stores"][name], now["stores"][name])}
            for name, spec in topology.stores.items()
        ):
            return
        differences = list(structure_differences(self.structure, now))
        listed = "; ".join(differences) or "its nodes are connected differently"
        raise SnapshotError(
            f"{self.root}: is a snapshot of another topology of {self.application_id!r}: {listed}; "
            "replay with the current one, or see `streams diff` for what would change"
        )

    def check_partitions(self, counts: Mapping[str, int]) -> None:
        """Check that topics have the same partition counts as in the snapshot.

        Raises:
            SnapshotError: the partition count of a topic differs.
        """
        for topic, count in counts.items():
            own = self.partitions.get(topic, count)
            if own != count:
                raise SnapshotError(
                    f"{self.root}: topic {topic!r} had {own} partitions, now {count}; keys would move away "
                    "from their state; replay from the start with the current count"
                )

    def check_files(self) -> None:
        """Check that a saved snapshot has all files, and that the files of stores are unchanged.

        Raises:
            SnapshotError: a file is missing or damaged; the message has its path.
        """
        for path, (size, _) in sorted(self.files.items()):
            place = self.root.child(path)
            if not place.exists() or place.size() != size:
                what = f"has {place.size():,} bytes, not {size:,}" if place.exists() else "is missing"
                raise SnapshotError(
                    f"{place}: {what}; see `streams snapshot verify {self.root}`; restore a copy, or replay again"
                )
        for path in sorted(self.state.files()):
            try:
                check_seal(self.segments.place(path))
            except ReplayError as error:
                raise SnapshotError(str(error)) from error

    def verify(self, on_file: Callable[[str], None] = lambda file: None) -> list[str]:
        """Return the problems found in the files of a saved snapshot; empty if all files are unchanged."""
        problems = []
        for path, (size, digest) in sorted(self.files.items()):
            place = self.root.child(path)
            on_file(path)
            if not place.exists():
                problems.append(f"{path}: is missing")
            elif place.size() != size:
                problems.append(f"{path}: has {place.size():,} bytes, not {size:,}")
            elif place.digest() != digest:
                problems.append(f"{path}: its bytes have changed")
        names = set(self.files)
        listed = self.state.files() | {extent.file for extents in self.outputs.values() for extent in extents}
        problems += [f"{file}: is used but not listed" for file in sorted(listed - names)]
        return problems


def _end_of(segments: Segments, extents: Sequence[Extent], reached: int) -> tuple[LastRecord | None, int]:
    """Return a partition's last record before offset ``reached``, and the highest timestamp up to this record."""
    before = [extent for extent in extents if extent.first < reached]
    if not before:
        return None, NO_TIMESTAMP
    (block,) = segments.blocks(before[-1:], 0, reached)
    offset = block.offsets[-1]
    size = len(block)
    last = LastRecord(offset, block.timestamps[-1], record_digest(block.slice(size - 1, size)))
    return last, max([*block.timestamps, *(extent.highest_ms for extent in before[:-1])])


# --- structure ----------------------------------------------------------------------------


def structure_of(topology: Topology, partitions: Mapping[str, int]) -> dict[str, Any]:
    """Return the parts of a topology that must not change if its state is reused: stores, topics and partitions."""
    internal = topology.internal_topics
    return {
        "stores": {name: _store_structure(spec) for name, spec in sorted(topology.stores.items())},
        "global_stores": sorted(topology.global_stores),
        "internal_topics": {
            name: partitions.get(name, internal.partitions)
            for name, internal in sorted(topology.internal_topics.items())
        },
        "sources": sorted(
            {topic for node in topology.sources() for topic in node.topics} - set(topology.internal_topics)
        ),
        "sinks": sorted({sink.topic for sink in topology.sinks() if sink.topic} - set(internal)),
        "partitions": dict(sorted(partitions.items())),
    }


def _store_structure(spec: StoreSpec) -> dict[str, Any]:
    return {
        "kind": spec.kind.name,
        **({} if spec.kind.base == spec.kind.name else {"base": spec.kind.base}),
        "key": spec.key_serde.name,
        "value": spec.value_serde.name,
        "retention_ms": spec.retention_ms,
        "window_size_ms": spec.window_size_ms,
        **({} if spec.calendar is None else {"calendar": spec.calendar.described()}),
        **({} if spec.calendar is None else {"openings": [*map(list, spec.calendar.table)]}),
        "history_ms": spec.history_ms,
        "has_changelog": spec.has_changelog,
    }


def structure_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield the differences of two structures as text."""
    for name in sorted({*old["stores"], *new["stores"]}):
        before = old["stores"].get(name)
        after = new["stores"].get(name)
        if after is None:
            yield f"store {name!r} is gone"
        elif before is None:
            yield f"store {name!r} is new"
        else:
            for what in _changed(before, after):
                yield f"store {name!r} has {what} {after.get(what)!r} instead of {before.get(what)!r}"
    for part, word in _PARTS.items():
        for name in sorted(set(old[part]) - set(new[part])):
            yield f"{word} {name!r} is gone"
        for name in sorted(set(new[part]) - set(old[part])):
            yield f"{word} {name!r} is new"


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs between the structures of a store."""
    # A table of openings may grow, also by a longer one.
    ignored = {"openings", "window_size_ms", "retention_ms"} if before.get("openings") else set()
    for what in sorted((before.keys() | after.keys() & {"calendar"}) - ignored):
        if before.get(what) != after.get(what):
            yield what


def _moved(extent: Extent, files: Mapping[str, str]) -> Extent:
    return extent._replace(file=files[extent.file])


def _moved_state(state: ReplayState, files: Mapping[str, str]) -> ReplayState:
    def moved(ref: StoreRef) -> StoreRef:
        assert not ref.changes, "a state is handed over as whole contents"
        return StoreRef(tuple(_moved(extent, files) for extent in ref.extents), ref.carried)

    result = state.copy()
    result.stores = {task: {name: moved(ref) for name, ref in refs.items()} for task, refs in state.stores.items()}
    result.lanes = {lane: [_moved(extent, files) for extent in extents] for lane, extents in state.lanes.items()}
    result.tables = {topic: table.moved(files) for topic, table in state.tables.items()}
    result.global_stores = {name: moved(ref) for name, ref in state.global_stores.items()}
    return result
