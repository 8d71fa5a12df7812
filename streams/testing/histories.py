"""Histories of what clients sent and polled, and what in them no log may do.

The checks are those of Jepsen's workload for Kafka.  A history is what the clients saw, never what the brokers store.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from attrs import define, field, frozen

from streams.core.blocks.records import ConsumerRecord, TopicPartition
from streams.core.errors import ConfigError

#: What the client knows of an operation: it was done, it was not and never will be, or it may have been.
OperationOutcome: TypeAlias = Literal["ok", "failed", "unknown"]
#: What a value is told apart by: its partition, and itself.
_Place: TypeAlias = tuple[TopicPartition, Hashable]


class AnomalyKind(Enum):
    """What no log may do; the value is the name in reports."""

    #: An acknowledged record was skipped by all who read on behind it, or by all (``is_drained``).
    LOST_WRITE = "lost write"
    #: A record was polled whose send or transaction failed (G1a).
    ABORTED_READ = "aborted read"
    #: A transaction polled a record that it sent itself.
    OWN_READ = "own read"
    DUPLICATE = "duplicate"
    #: An offset has two records.
    INCONSISTENT_OFFSET = "inconsistent offset"
    #: Records were polled against the order of the log, within one poll or in the next one of the same process.
    POLL_BACKWARDS = "poll backwards"
    #: Records between two polled ones were not polled, though the process had not moved.
    POLL_SKIP = "poll skip"
    #: Records are in the log against the order in which one process sent them.
    SEND_BACKWARDS = "send backwards"
    #: Transactions wrote between each other's records (G0).
    WRITE_CYCLE = "write cycle"
    #: Each transaction of a cycle polled what the one before had sent, or wrote behind it (G1c).
    INFORMATION_CYCLE = "information cycle"


class ClientRecord(NamedTuple):
    """A record as a client saw it; ``value`` tells it from all others of its partition.

    ``offset`` is None if the client does not know it.
    """

    partition: TopicPartition
    value: Hashable
    offset: int | None = None

    def __str__(self) -> str:
        return f"{self.value!r} at {self.partition}:{'?' if self.offset is None else self.offset}"


@frozen(eq=False)
class ClientOperation:
    """What one process did at once: a send, a poll or a transaction.

    ``moved`` are partitions that were assigned to it, or whose position it has set.
    """

    index: int
    process: str
    outcome: OperationOutcome
    sent: Sequence[ClientRecord] = ()
    polled: Sequence[ClientRecord] = ()
    moved: frozenset[TopicPartition] = frozenset()

    def __str__(self) -> str:
        parts = [f"{verb} {_few(rows)}" for verb, rows in (("sent", self.sent), ("polled", self.polled)) if rows]
        return f"#{self.index} {self.process}, {self.outcome}: {'; '.join(parts) or 'moved'}"


@frozen
class Anomaly:
    """Something that no log may do, with the operations that show it."""

    kind: AnomalyKind
    message: str
    operations: tuple[ClientOperation, ...]

    def __str__(self) -> str:
        return "\n  ".join((f"{self.kind.value}: {self.message}", *map(str, self.operations)))


@define(eq=False)
class ClientHistory:
    """Operations in the order in which their processes did them; a process does one after the other."""

    operations: list[ClientOperation] = field(factory=list)

    def poll(
        self,
        process: str,
        records: Iterable[ConsumerRecord[Any, Any] | ClientRecord],
        *,
        value: Callable[[ConsumerRecord[Any, Any]], Hashable] = lambda record: record.value,
    ) -> None:
        """Note what a consumer returned from a poll; ``value`` tells a record from all others of its partition."""
        polled = (
            row if isinstance(row, ClientRecord) else ClientRecord(TopicPartition(*row[:2]), value(row), row.offset)
            for row in records
        )
        self.transaction(process, polled=polled)

    def transaction(
        self,
        process: str,
        *,
        sent: Iterable[ClientRecord] = (),
        polled: Iterable[ClientRecord] = (),
        outcome: OperationOutcome = "ok",
    ) -> None:
        """Note a transaction: what was sent in it, and what was polled whose offsets were committed with it.

        A send without a transaction is one of its own.

        Raises:
            ConfigError: the outcome is none, or a value has no hash.
        """
        if outcome not in get_args(OperationOutcome):
            raise ConfigError(f"outcome of an operation must be one of {get_args(OperationOutcome)}, not {outcome!r}")
        self._add(process, outcome, tuple(sent), tuple(polled), frozenset())

    def move(self, process: str, partitions: Iterable[TopicPartition]) -> None:
        """Note that a consumer was assigned these partitions, or set its position in them."""
        self._add(process, "ok", (), (), frozenset(partitions))

    def _add(
        self,
        process: str,
        outcome: OperationOutcome,
        sent: Sequence[ClientRecord],
        polled: Sequence[ClientRecord],
        moved: frozenset[TopicPartition],
    ) -> None:
        for row in (*sent, *polled):
            try:
                hash(row.value)
            except TypeError as error:
                raise ConfigError(f"{row}: {error}; take a number or id of it, in polls by value=") from error
        if sent or polled or moved:
            self.operations.append(ClientOperation(len(self.operations), process, outcome, sent, polled, moved))


def check_history(
    history: ClientHistory,
    *,
    is_drained: bool = False,
    has_isolated_writes: bool = False,
    results: Mapping[str, str] | None = None,
) -> list[Anomaly]:
    """Return what in a history no log may do; empty if all is right.

    With ``is_drained``, all partitions have been read to their ends, so that an acknowledged record that nobody polled
    is lost also if nothing was polled behind it.  With ``has_isolated_writes``, transactions may not write between each
    other's records, which Kafka allows.  ``results`` has topics, each with the topic of which its records are the
    results, one with the same value for each record: what was sent there must be polled here, once, in any partition.

    Raises:
        ConfigError: a value was sent twice to a partition, so that nothing can be said of it.
    """
    facts = _Facts(history.operations)
    anomalies = [
        *_wrong_logs(facts),
        *_aborted_reads(facts),
        *_lost_writes(facts, is_drained=is_drained),
        *_wrong_orders(facts),
        *_cycles(facts, has_isolated_writes=has_isolated_writes),
    ]
    for output, source in (results or {}).items():
        anomalies += _wrong_results(facts, output, source, is_drained=is_drained)
    return anomalies


class _Facts:
    def __init__(self, operations: Sequence[ClientOperation]) -> None:
        self.operations = operations
        #: The operation that sent a value, and those that polled it.
        self.writers: dict[_Place, ClientOperation] = {}
        self.readers: defaultdict[_Place, list[ClientOperation]] = defaultdict(list)
        for operation in operations:
            for message in operation.sent:
                if message[:2] in self.writers:
                    raise ConfigError(
                        f"value {message.value!r} was sent twice to {message.partition}; a history needs values that "
                        "tell the records of a partition apart, such as numbers"
                    )
                self.writers[message[:2]] = operation
            for message in operation.polled:
                self.readers[message[:2]].append(operation)

    def is_committed(self, operation: ClientOperation) -> bool:
        """Whether the sends of an operation are certainly in the log: acknowledged, or one of them was polled."""
        is_seen = operation.outcome == "unknown" and any(row[:2] in self.readers for row in operation.sent)
        return is_seen or operation.outcome == "ok"

    @cached_property
    def logs(self) -> dict[TopicPartition, dict[int, list[Hashable]]]:
        """The values at each offset of each partition, in the order of the offsets."""
        logs: defaultdict[TopicPartition, defaultdict[int, dict[Hashable, None]]]
        logs = defaultdict(lambda: defaultdict(dict))
        for operation in self.operations:
            for at, value, offset in (*(operation.sent if self.is_committed(operation) else ()), *operation.polled):
                if offset is not None:
                    logs[at][offset][value] = None
        return {at: {offset: list(log[offset]) for offset in sorted(log)} for at, log in logs.items()}

    @cached_property
    def places(self) -> dict[_Place, int]:
        """The place of each value in the log of its partition, without gaps; the first one of a duplicate."""
        places: dict[_Place, int] = {}
        for at, log in self.logs.items():
            for place, values in enumerate(log.values()):
                for value in values:
                    places.setdefault((at, value), place)
        return places

    def distance(self, one: ClientRecord, other: ClientRecord) -> int:
        """Return how many places of the log the second record is behind the first; 1 if a place is unknown."""
        places = self.places.get(one[:2]), self.places.get(other[:2])
        return 1 if places[0] is None or places[1] is None else places[1] - places[0]

    def seen(self, at: TopicPartition, values: Iterable[Hashable]) -> tuple[ClientOperation, ...]:
        """Return the operations that sent or polled any of these values."""
        places = [(at, value) for value in values]
        sent = (self.writers[place] for place in places if place in self.writers)
        return tuple(dict.fromkeys((*sent, *(reader for place in places for reader in self.readers.get(place, ())))))


def _wrong_logs(facts: _Facts) -> Iterator[Anomaly]:
    for at, log in facts.logs.items():
        offsets: defaultdict[Hashable, list[int]] = defaultdict(list)
        for offset, values in log.items():
            for value in values:
                offsets[value].append(offset)
            if len(values) > 1:
                text = f"{at}:{offset} has {' and '.join(map(repr, values))}"
                yield Anomaly(AnomalyKind.INCONSISTENT_OFFSET, text, facts.seen(at, values))
        for value, several in offsets.items():
            if len(several) > 1:
                text = f"{value!r} is at {at}:{' and '.join(map(str, several))}"
                yield Anomaly(AnomalyKind.DUPLICATE, text, facts.seen(at, [value]))


def _aborted_reads(facts: _Facts) -> Iterator[Anomaly]:
    # Also a poll of a transaction that fails later must return committed records only.
    for (at, value), writer in facts.writers.items():
        readers = facts.readers.get((at, value), [])
        if readers and writer.outcome == "failed":
            text = f"{value!r} of {at} was polled, whose send failed"
            yield Anomaly(AnomalyKind.ABORTED_READ, text, (writer, *readers))
        if writer in readers:
            yield Anomaly(AnomalyKind.OWN_READ, f"{value!r} of {at} was polled by its own transaction", (writer,))


def _lost_writes(facts: _Facts, *, is_drained: bool) -> Iterator[Anomaly]:
    # How far each partition was certainly read.
    read: dict[TopicPartition, tuple[int, ClientOperation]] = {}
    for (at, value), readers in facts.readers.items():
        first = facts.places.get((at, value), -1)
        if first > read.get(at, (-1,))[0]:
            read[at] = first, readers[0]
    for (at, value), writer in facts.writers.items():
        if (at, value) in facts.readers or not facts.is_committed(writer):
            continue
        place = facts.places.get((at, value))
        text = f"{value!r} of {at} was acknowledged, and"
        if at in read and place is not None and place < read[at][0]:
            yield Anomaly(AnomalyKind.LOST_WRITE, f"{text} skipped by all who read on", (writer, read[at][1]))
        elif is_drained:
            yield Anomaly(AnomalyKind.LOST_WRITE, f"{text} never polled", (writer,))


def _wrong_orders(facts: _Facts) -> Iterator[Anomaly]:
    polls: dict[tuple[str, TopicPartition], tuple[ClientRecord, ClientOperation]] = {}
    sends: dict[tuple[str, TopicPartition], tuple[ClientRecord, ClientOperation]] = {}
    for operation in facts.operations:
        for partition in operation.moved:
            polls.pop((operation.process, partition), None)
        reached = dict(polls)
        sent = operation.sent if operation.outcome != "failed" else ()
        for message, last in (*((row, reached) for row in operation.polled), *((row, sends) for row in sent)):
            at = operation.process, message.partition
            one, earlier = last.get(at, (message, operation))
            distance = facts.distance(one, message) if at in last else 1
            # Between the records that a process sends there may be those of others.
            if distance < 1 or (distance > 1 and last is reached):
                backwards = AnomalyKind.SEND_BACKWARDS if last is sends else AnomalyKind.POLL_BACKWARDS
                kind = backwards if distance < 1 else AnomalyKind.POLL_SKIP
                yield Anomaly(kind, f"after {one} came {message}", tuple(dict.fromkeys((earlier, operation))))
            last[at] = message, operation
        polls = reached if operation.outcome == "ok" else polls


def _cycles(facts: _Facts, *, has_isolated_writes: bool) -> Iterator[Anomaly]:
    """Yield the cycles of writes, then those of what transactions polled, each once."""
    edges: dict[AnomalyKind, list[tuple[ClientOperation, ClientOperation, str]]] = {
        AnomalyKind.WRITE_CYCLE: [],
        AnomalyKind.INFORMATION_CYCLE: [],
    }
    for at, log in facts.logs.items() if has_isolated_writes else ():
        authors = (facts.writers.get((at, values[0])) for values in log.values())
        for one, other in pairwise(author for author in authors if author is not None):
            edges[AnomalyKind.WRITE_CYCLE].append((one, other, f"wrote to {at} behind"))
    for (at, value), writer in facts.writers.items():
        for reader in facts.readers.get((at, value), ()):
            if reader.outcome != "failed":
                edges[AnomalyKind.INFORMATION_CYCLE].append((writer, reader, f"polled {value!r} of {at} from"))
    graph: defaultdict[ClientOperation, set[ClientOperation]] = defaultdict(set)
    shown: set[frozenset[ClientOperation]] = set()
    for kind, drawn in edges.items():
        for one, other, _ in drawn:
            if one is not other:
                graph[one].add(other)
        for one, other, text in drawn if _has_cycle(graph) else ():
            path = _path(graph, other, one) if one is not other else ()
            if path and frozenset(path) not in shown:
                shown.add(frozenset(path))
                yield Anomaly(kind, f"#{other.index} {text} #{one.index}, which depends on it", path)


def _wrong_results(facts: _Facts, output: str, source: str, *, is_drained: bool) -> Iterator[Anomaly]:
    results: defaultdict[Hashable, dict[tuple[TopicPartition, int | None], ClientOperation]] = defaultdict(dict)
    for operation in facts.operations:
        for at, value, offset in operation.polled:
            if at.topic == output:
                results[value].setdefault((at, offset), operation)
    for (at, value), writer in facts.writers.items():
        readers = tuple(results.get(value, {}).values())
        text = f"the result of {value!r} of {at} in {output!r}"
        if at.topic != source:
            continue
        if readers and writer.outcome == "failed":
            yield Anomaly(AnomalyKind.ABORTED_READ, f"{text} was polled, whose send failed", (writer, *readers))
        elif len(readers) > 1:
            yield Anomaly(AnomalyKind.DUPLICATE, f"{text} is there {len(readers)} times", (writer, *readers))
        elif is_drained and not readers and facts.is_committed(writer):
            yield Anomaly(AnomalyKind.LOST_WRITE, f"{text} was never polled", (writer,))


def _has_cycle(graph: Mapping[ClientOperation, set[ClientOperation]]) -> bool:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return True
    return False


def _path(
    graph: Mapping[ClientOperation, set[ClientOperation]], start: ClientOperation, end: ClientOperation
) -> tuple[ClientOperation, ...]:
    """Return the shortest path between two operations, or an empty one."""
    paths: dict[ClientOperation, tuple[ClientOperation, ...]] = {start: (start,)}
    waiting = deque([start])
    while waiting and end not in paths:
        operation = waiting.popleft()
        for following in sorted(graph.get(operation, ()), key=lambda other: other.index):
            if following not in paths:
                paths[following] = (*paths[operation], following)
                waiting.append(following)
    return paths.get(end, ())


def _few(messages: Sequence[ClientRecord]) -> str:
    shown = ", ".join(map(str, messages[:4]))
    return shown if len(messages) <= 4 else f"{shown} and {len(messages) - 4} more"
