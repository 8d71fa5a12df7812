"""What a run gave, in a form to compare: outputs, stores and drops of bounded live runs and of replays.

Inputs are rows with their partitions, so that both read the very same records: a live run through a
reader, a replay from archives.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple, TypeAlias

from attrs import field, frozen

from streams.bounded import BoundedRun, run_bounded
from streams.core.blocks.records import Block, Headers, TopicPartition
from streams.core.topic import Topic
from streams.replay.api import drive as drive_session
from streams.replay.calls.work import StageReport, declared_topic
from streams.replay.history.archive import ArchivedPartition, write_archive
from streams.replay.run.local import LocalExecutor
from streams.replay.run.request import Plan, Request
from streams.replay.run.result import Outputs, ReplayResult, Stores
from streams.replay.run.session import ReplaySession
from streams.replay.storage.places import Place
from streams.state import open_store
from streams.topology.topology import Topology

APPLICATION = "app"


class Row(NamedTuple):
    """One record of a source topic."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()


#: Rows by topic, in the order in which they were appended.
Inputs: TypeAlias = Mapping[str, Sequence[Row]]
#: (offset, key, value, timestamp, headers) of a record.
Record: TypeAlias = tuple[int, bytes | None, bytes | None, int, Headers]
#: (key, value, timestamp) of a store's entry, as its changelog has it.
Entry: TypeAlias = tuple[bytes | None, bytes | None, int]


@frozen
class Outcome:
    """What a run gave."""

    #: Topic -> partition -> records; partitions without records are left out.
    outputs: Mapping[str, Mapping[int, Sequence[Record]]]
    #: Store -> partition -> contents; empty ones are left out.  Stores that only one of two runs can tell are
    #: not compared: of a live run those that have a changelog of their own.
    stores: Mapping[str, Mapping[int, Sequence[Entry]]] = field(factory=dict)
    #: Records dropped, by node.
    dropped: Mapping[str, int] = field(factory=dict)

    def difference(self, other: "Outcome", *, ignores: Iterable[str] = ()) -> str | None:
        """Return the first thing in which another outcome differs, None if in nothing."""
        for what in ("outputs", "stores"):
            one, two = getattr(self, what), getattr(other, what)
            names = {*one, *two} if what == "outputs" else {*one} & {*two}
            for name in sorted(names.difference(ignores)):
                for number in sorted({*one.get(name, {}), *two.get(name, {})}):
                    found = _first(one.get(name, {}).get(number, ()), two.get(name, {}).get(number, ()))
                    if found is not None:
                        return f"{what[:-1]} {name}-{number}{found}"
        if dict(self.dropped) != dict(other.dropped):
            return f"dropped: {dict(self.dropped)} and {dict(other.dropped)}"
        return None


def _first(one: Sequence[Any], two: Sequence[Any]) -> str | None:
    for place in range(max(len(one), len(two))):
        left = one[place] if place < len(one) else None
        right = two[place] if place < len(two) else None
        if left != right:
            return f"[{place}] of {len(one)} and {len(two)}: {left} and {right}"
    return None


def _records(block: Block) -> Iterator[Record]:
    return block.rows()


def _entries(block: Block) -> list[Entry]:
    return list(zip(block.keys, block.values, block.timestamps, strict=True))


def _grouped(blocks: Iterable[tuple[int, Block]], rows: Callable[[Block], Iterable[Any]]) -> dict[int, list[Any]]:
    result: dict[int, list[Any]] = {}
    for number, block in blocks:
        result.setdefault(number, []).extend(rows(block))
    return {number: found for number, found in result.items() if found}


def _filled(found: Mapping[str, Mapping[int, Any]]) -> dict[str, Mapping[int, Any]]:
    return {name: partitions for name, partitions in found.items() if partitions}


@contextmanager
def quick_folder() -> Iterator[Path]:
    """Give a folder in memory where there is one: a replay waits for the disk with each file that it writes."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(prefix="streams-", dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


# --- live -----------------------------------------------------------------------------------


def rows_of_blocks(rows: Sequence[Row], first_offset: int = 0) -> Iterator[tuple[int, Block]]:
    """Yield rows as one block for each partition."""
    for number in sorted({row.partition for row in rows}):
        mine = [row for row in rows if row.partition == number]
        headers = [row.headers for row in mine]
        yield (
            number,
            Block(
                [row.key for row in mine],
                [row.value for row in mine],
                [row.timestamp_ms for row in mine],
                headers if any(headers) else None,
                range(first_offset, first_offset + len(mine)),
            ),
        )


def _reader(rows: Sequence[Row]) -> Any:
    def read(count: int, skip: int) -> Iterator[list[tuple[int, Block]]]:
        if rows[skip:]:
            yield list(rows_of_blocks(rows[skip:]))

    return read


def lived(
    topology: Any,
    inputs: Inputs,
    *,
    partitions: int = 1,
    final_flush: bool = False,
    state_dir: Path | None = None,
    **settings: Any,
) -> Outcome:
    """Return the outcome of a bounded live run on the embedded broker."""
    with run_bounded(
        topology,
        {topic: _reader(rows) for topic, rows in inputs.items()},
        application_id=settings.pop("application_id", APPLICATION),
        partitions=partitions,
        state_dir=state_dir,
        final_flush=final_flush,
        settings={"poll_ms": 1, "default_store": "in_memory", **settings},
    ) as run:
        others = [topic for topic in (settings.get("errors_dead_letter_queue_topic_name"),) if topic]
        return lived_outcome(run, inputs, others)


def lived_outcome(
    run: BoundedRun, inputs: Inputs, others: Iterable[str] = (), application_id: str = APPLICATION
) -> Outcome:
    """Read what a bounded run gave, to ``others`` too; stores are what their changelogs restore."""
    topology, broker = run.topology, run.broker
    written = {*_written(topology, set(broker.topics()).difference(inputs)), *others}
    outputs = {topic: _grouped(run.read_output(topic), _records) for topic in written}
    for topic, rows in inputs.items():
        if topic in outputs:
            outputs[topic] = _without(outputs[topic], rows)
    stores = {}
    for name, spec in topology.stores.items():
        changelog = f"{application_id}-{name}-changelog"
        if spec.has_changelog and changelog in broker.topics():
            stores[name] = {
                number: contents
                for number, blocks in _by_partition(run.read_output(changelog)).items()
                if (contents := _restored(spec, blocks))
            }
    return Outcome(_filled(outputs), stores, run.dropped)


def _without(partitions: dict[int, list[Record]], rows: Sequence[Row]) -> dict[int, list[Record]]:
    """Leave out what came from outside to a topic that tasks write too: a replay gives what tasks wrote."""
    left = Counter(rows)
    result: dict[int, list[Record]] = {}
    for number, records in partitions.items():
        for record in records:
            row = Row(number, *record[1:])
            if left[row]:
                left[row] -= 1
            else:
                kept = result.setdefault(number, [])
                kept.append((len(kept), *record[1:]))
    return result


def _written(topology: Topology, known: Iterable[str]) -> list[str]:
    """Return the topics that may be written, those chosen record by record included; no internal ones."""
    sinks = {sink.topic for sink in topology.sinks()}
    if None not in sinks:
        return sorted(sink for sink in sinks if sink not in topology.internal_topics)
    return sorted(topic for topic in known if not topic.startswith(f"{APPLICATION}-"))


def _by_partition(blocks: Iterable[tuple[int, Block]]) -> dict[int, list[Block]]:
    result: dict[int, list[Block]] = {}
    for number, block in blocks:
        result.setdefault(number, []).append(block)
    return result


def _restored(spec: Any, blocks: Sequence[Block]) -> list[Entry]:
    with closing(open_store(spec, None, default_engine="in_memory")) as store:
        for block in blocks:
            store.restore(block)
        return [entry for block in store.snapshot_blocks() for entry in _entries(block)]


# --- replayed -------------------------------------------------------------------------------


def archived(folder: Path, inputs: Inputs, counts: Mapping[str, int]) -> dict[str, Path]:
    """Write the rows of each topic to an archive, behind what is there; return their folders."""
    found = {}
    for topic, rows in inputs.items():
        blocks = dict(rows_of_blocks(rows))

        @contextmanager
        def opened(partition: TopicPartition, _: int, blocks: dict[int, Block] = blocks) -> Iterator[ArchivedPartition]:
            block = blocks.get(partition.partition, Block([], [], []))
            yield ArchivedPartition(0, len(block), lambda position: iter([block.slice(position)]))

        write_archive(Place(str(folder / topic)), topic, counts[topic], opened)
        found[topic] = folder / topic
    return found


def record_files(folder: Path, inputs: Inputs, topology: Topology) -> dict[str, Path]:
    """Write the rows of each topic to a record file, keys and values as their bytes; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, rows in inputs.items():
        topic = declared_topic(topology, name)
        found[name] = folder / f"{name}.records.jsonl"
        found[name].write_text("".join(json.dumps(_line(row, topic)) + "\n" for row in rows))
    return found


def _line(row: Row, topic: Topic[Any, Any]) -> dict[str, Any]:
    line: dict[str, Any] = {"partition": row.partition, "timestamp": row.timestamp_ms}
    for name, data, serde in (("key", row.key, topic.key_serde), ("value", row.value, topic.value_serde)):
        # In a JSON value an object of this form is an object.
        is_json = serde.name == "json" and data is not None
        line[name] = json.loads(data or b"") if is_json else None if data is None else {"$hex": data.hex()}
    if row.headers:
        line["headers"] = [[name, None if data is None else data.decode()] for name, data in row.headers]
    return line


def session_of(
    topology: Any,
    inputs: Mapping[str, Any],
    root: Path,
    *,
    partitions: int = 1,
    store: Literal["rocksdb", "in_memory"] = "in_memory",
    **keywords: Any,
) -> ReplaySession:
    """Return a session to be driven, alone or packed with others; as from the arguments of ``replay``."""
    root.mkdir(parents=True, exist_ok=True)
    keywords.setdefault("application_id", APPLICATION)
    request = Request.of(topology, inputs, Plan(partitions=partitions, store=store), keywords)  # type: ignore[arg-type]
    return ReplaySession(request, Place(str(root)))


def result_of(session: ReplaySession) -> ReplayResult:
    """Return the result of a session that was driven to its end."""
    return ReplayResult(session, Outputs(session, None), Stores(session))


def replayed_outcome(result: ReplayResult) -> Outcome:
    """Read what a replay gave."""
    outputs = {str(topic): _grouped(result.read(topic), _records) for topic in result.outputs}
    stores = {
        name: _grouped(result.stores[name].blocks(), _entries)
        for name, spec in result.session.topology.stores.items()
        if spec.has_changelog
    }
    return Outcome(_filled(outputs), stores, result.dropped)


def drive(session: ReplaySession | Generator[list[Any], list[StageReport], None], executor: Any = None) -> None:
    """Run one session, or the calls of a generator, by itself.

    Raises:
        StreamsError: a call failed; of a session it is explained as users see it.
    """
    own = executor or LocalExecutor(1)
    if isinstance(session, ReplaySession):
        drive_session(session, own)
    else:
        packed_run([session], own)


def packed_run(steps: Sequence[Generator[list[Any], list[StageReport], None]], executor: Any) -> int:
    """Run several generators of calls side by side: one call of the executor for a round of all; return the rounds.

    Raises:
        StreamsError: a call failed.
    """
    waiting = {index: works for index, each in enumerate(steps) if (works := next(each, None)) is not None}
    rounds = 0
    while waiting:
        rounds += 1
        reports = iter(executor.run([work for works in waiting.values() for work in works], lambda report: None))
        for index, works in list(waiting.items()):
            try:
                waiting[index] = steps[index].send([next(reports) for _ in works])
            except StopIteration:
                del waiting[index]
    return rounds
