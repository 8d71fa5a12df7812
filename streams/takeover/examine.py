"""The examination of an application that is to go on with another's state: reads the cluster, and reports.

``examine`` collects facts and readings and hands them to the checks.  ``mark`` notes where the application stands;
``shadow`` repeats what it did since.  None of them writes to the cluster.
"""

from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, frozen

from streams.comparison import Finding, Level
from streams.core.blocks.key_places import KeyPlaces
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import InputError, StreamsError
from streams.core.settings.config import StreamsConfig
from streams.protocol.group_messages import OffsetAndMetadata
from streams.protocol.messages import TopicSpec
from streams.runtime import Checkpoint, inputs_by_key
from streams.state import StoreSpec
from streams.takeover import checks
from streams.takeover.described import compare
from streams.takeover.facts import ClusterReader, Facts
from streams.takeover.marks import PositionMark, block_of, digest, live_entries
from streams.takeover.readings import EntryReader, Reading, read
from streams.takeover.semantics import of_semantics
from streams.takeover.shadow import OutputDifference, Stretch, play, shadow_settings
from streams.takeover.shadow import compare as compare_outputs
from streams.topology import Topology, TopologyDescription, behind_caches, describe


@frozen
class Candidate:
    """What is asked: the application here, what Java says of its own, and the direction."""

    topology: Topology
    config: StreamsConfig
    #: The settings as they were given.
    settings: Mapping[str, Any]
    #: What Java describes; with None, topologies are not compared.
    java: TopologyDescription | None = None
    gives_back: bool = False
    #: Most records that a shadow has in memory.
    max_records: int = 1_000_000


@frozen
class Shadow:
    """What a shadow has shown: the number of its input records, and the differences of outputs."""

    inputs: int
    outputs: tuple[OutputDifference, ...]


@frozen
class Report:
    """All that was found out."""

    application_id: str
    gives_back: bool
    state: str
    #: Committed offsets, and how many of them have metadata that Kafka Streams reads.
    offsets: int
    known_offsets: int
    #: Times up to which closed windows were emitted, by store.
    emitted: Mapping[str, int]
    #: Differences of the topologies; None: not compared.
    differences: int | None
    #: The size of the record cache with which the application here starts.
    cache_max_bytes: int
    stores: tuple[Reading, ...]
    topics: tuple[Reading, ...]
    findings: tuple[Finding, ...]
    shadow: Shadow | None = None

    @property
    def level(self) -> Level | None:
        """The most severe level of all findings, or None if there are none."""
        return max((finding.level for finding in self.findings), default=None)

    @property
    def fits(self) -> bool:
        """Whether nothing speaks against it, and nothing has to be checked."""
        return self.level is None or self.level is Level.NOTE

    def with_shadow(self, shadow: Shadow | None, findings: list[Finding]) -> "Report":
        """Return the report with what a shadow has shown."""
        return evolve(self, shadow=shadow, findings=checks.worst_first([*self.findings, *findings]))


@frozen
class Examination:
    """An application here over the facts of a cluster."""

    candidate: Candidate
    reader: ClusterReader
    facts: Facts
    successor: checks.Successor

    @classmethod
    def of(cls, candidate: Candidate, reader: ClusterReader) -> "Examination":
        """Read the facts, with the offsets of all partitions that count."""
        facts = reader.facts(candidate.config.application_id)
        successor = checks.Successor.of(candidate.topology, candidate.config, facts.partition_counts)
        topics = [*successor.changelogs(), *successor.outputs(), *_global_topics(candidate.topology)]
        asked = dict.fromkeys([*successor.inputs(), *(at for topic in topics for at in facts.partitions(topic))])
        starts, ends, stable = reader.ranges(asked)
        return cls(candidate, reader, evolve(facts, starts=starts, ends=ends, stable=stable), successor)

    def report(self) -> Report:
        """Read all state, and report."""
        candidate, facts, successor = self.candidate, self.facts, self.successor
        findings = [*checks.of_group(facts), *checks.of_start(successor, facts)]
        of_topics = list(checks.of_topics(successor, facts))
        compared = [] if candidate.java is None else compare(candidate.java, describe(candidate.topology))
        # What the cluster shows as well is said once.
        shown = {(finding.level, finding.subject) for finding in of_topics}
        findings += [finding for finding in compared if (finding.level, finding.subject) not in shown]
        findings += of_topics
        findings += checks.of_offsets(successor, facts)
        findings += of_semantics(candidate.topology, candidate.config)
        stores = self._stores()
        topics = self._topics()
        findings += checks.of_readings([*stores, *topics])
        findings += checks.of_keys(self._key_places())
        if candidate.gives_back:
            findings += checks.of_give_back(successor, facts)
        metadata = {at: item.metadata for at, item in facts.committed.items()}
        timed_count, emitted = _times(metadata)
        return Report(
            facts.application_id,
            candidate.gives_back,
            facts.state,
            len(facts.committed),
            timed_count,
            emitted,
            None if candidate.java is None else len(compared),
            candidate.config.cache_max_bytes,
            tuple(stores),
            tuple(topics),
            checks.worst_first(findings),
        )

    def _stores(self) -> list[Reading]:
        readings = []
        for topic, spec in self.successor.changelogs().items():
            if topic in self.facts.partition_counts:
                readings.append(read(EntryReader.of_store(spec, topic), self.facts.partitions(topic), self._all))
        for name, store in self.candidate.topology.global_stores.items():
            for topic in store.source.topics:
                reader = EntryReader(Reading(topic, name), store.source.key_serde, store.source.value_serde)
                readings.append(read(reader, self.facts.partitions(topic), self._all))
        return readings

    def _key_places(self) -> list[KeyPlaces]:
        """Sample the keys of the inputs that stores read directly."""
        plan = self.successor.plan
        if plan is None or plan.config.misplaced_keys == "ignore":
            return []
        by_topic: dict[str, KeyPlaces] = {}
        for task_id in sorted(plan.groups):
            for item, home in inputs_by_key(plan, task_id):
                suffix = self.successor.inputs()[item.partition].key_serde.key_suffix
                places = by_topic.setdefault(item.topic, KeyPlaces(item.topic, plan.partitions[item.topic], suffix))
                for _, block in self.reader.samples([item.partition]):
                    places.look(item.number, block.keys, block.offsets, home)
        return [places for places in by_topic.values() if self.reader.is_by_key(places.topic)]

    def _topics(self) -> list[Reading]:
        """Read the records of internal topics that were not processed yet."""
        internal = self.successor.internal_inputs()
        by_topic: dict[str, list[TopicPartition]] = {}
        for at in internal:
            by_topic.setdefault(at.topic, []).append(at)
        readings = []
        for topic, partitions in by_topic.items():
            node = internal[partitions[0]]
            reader = EntryReader(Reading(topic, None), node.key_serde, node.value_serde)
            readings.append(read(reader, partitions, self._pending))
        return readings

    def _all(self, at: TopicPartition) -> Any:
        return self.reader.blocks(at, self.facts.starts.get(at, 0), self.facts.stable.get(at, 0))

    def _pending(self, at: TopicPartition) -> Any:
        return self.reader.blocks(at, self._position(at), self.facts.stable.get(at, 0))

    def _position(self, at: TopicPartition) -> int:
        item = self.facts.committed.get(at)
        return self.facts.starts.get(at, 0) if item is None else item.offset

    # --- marks and shadows ------------------------------------------------------------------

    def mark(self) -> PositionMark:
        """Return a mark of where the application stands.

        Raises:
            InputError: the application is not stopped.
        """
        self._check_stopped("a mark is made of a stopped application")
        digests = {}
        pending = {}
        for topic, spec in self.successor.changelogs().items():
            if topic in self.candidate.topology.source_changelogs.values():
                continue
            for at in self.facts.partitions(topic):
                digests[at] = digest(live_entries(self._all(at), has_versions=spec.kind.has_versions))
        for at in self.successor.internal_inputs():
            pending[at] = block_of([row[1:] for block in self._pending(at) for row in block.rows()])
        return PositionMark(self.facts.application_id, self.facts.committed, self.facts.stable, digests, pending)

    def _check_stopped(self, why: str) -> None:
        for finding in checks.of_group(self.facts):
            raise InputError(f"{why}: {finding.subject} {finding.says}; {finding.do}")

    def beginning(self) -> PositionMark:
        """Return the mark of an application that has not begun.

        Raises:
            InputError: records of an input or output have been deleted.
        """
        internal = self.successor.internal_inputs()
        for at in [*self.successor.inputs(), *self._output_partitions()]:
            start = self.facts.starts.get(at, 0)
            if start and at not in internal:
                raise InputError(
                    f"{at} begins at offset {start}: what was processed cannot be repeated from the beginning; stop "
                    "the application and make a mark (--mark FILE), let it go on, and give that (--shadow-from FILE)"
                )
        return PositionMark(self.facts.application_id)

    def shadow(self, mark: PositionMark) -> tuple[Shadow | None, list[Finding]]:
        """Repeat what the application did since a mark, and compare the outputs.

        Raises:
            InputError: the mark does not fit, or there is more than may be in memory.
        """
        self._check_stopped("a shadow is compared with what a stopped application has written")
        mark.check(self.facts)
        stretch = self._stretch(mark)
        settings = shadow_settings(self.candidate.settings)
        try:
            outputs = play(self.candidate.topology, self.facts.application_id, settings, stretch)
        except StreamsError as error:
            says = f"the application here failed on records that the other one has processed: {error}"
            return None, [Finding(Level.CANNOT, "shadow", says)]
        differences = []
        for topic in stretch.outputs:
            had = [block for at in self.facts.partitions(topic) for block in self._between(mark, at)]
            differences.append(compare_outputs(topic, had, outputs[topic], self.successor.shown(topic)))
        findings = _of_shadow(differences, self.successor)
        if self.candidate.config.cache_max_bytes and (nodes := behind_caches(self.candidate.topology)):
            findings.append(_of_caches(nodes))
        return Shadow(stretch.inputs, tuple(differences)), findings

    def _between(self, mark: PositionMark, at: TopicPartition) -> Any:
        return self.reader.blocks(at, mark.ends.get(at, self.facts.starts.get(at, 0)), self.facts.stable.get(at, 0))

    def _stretch(self, mark: PositionMark) -> Stretch:
        facts, successor = self.facts, self.successor
        inputs = successor.inputs()
        internal = successor.internal_inputs()
        changelogs = successor.changelogs()
        starts: dict[TopicPartition, int] = {}
        records: dict[TopicPartition, Block] = {}
        committed: dict[TopicPartition, OffsetAndMetadata] = {}
        budget = _Budget(self.candidate.max_records)
        count = 0
        for at in inputs:
            item = mark.committed.get(at)
            if item is not None:
                committed[at] = item
            begin = facts.starts.get(at, 0) if item is None else item.offset
            if at in internal:
                starts[at], records[at] = begin, mark.pending.get(at, Block([], [], []))
                continue
            if begin < facts.starts.get(at, 0):
                raise InputError(f"{at}: records since offset {begin} of the mark are deleted; make a mark again")
            rows = budget.rows(self.reader.blocks(at, begin, self._position(at)))
            count += len(rows)
            before = []
            if at.topic in changelogs and begin:
                # The table's state: what its source had before.
                blocks = self.reader.blocks(at, facts.starts.get(at, 0), begin)
                before = budget.rows([live_entries(blocks, has_versions=False)])
            starts[at], records[at] = begin - len(before), block_of([*before, *rows])
        for topic, spec in changelogs.items():
            for at in facts.partitions(topic):
                if at not in inputs:
                    starts[at], records[at] = self._state(mark, at, spec, budget)
        for topic in _global_topics(self.candidate.topology):
            for at in facts.partitions(topic):
                starts[at], records[at] = 0, block_of(budget.rows(self._all(at)))
        outputs = tuple(topic for topic in successor.outputs() if topic in facts.partition_counts)
        used = {at.topic for at in starts} | set(outputs)
        plan = successor.plan
        configs = {} if plan is None else {item.name: item.config for item in plan.internal_topics()}
        topics = {
            topic: TopicSpec(topic, facts.partition_counts[topic], configs.get(topic, {}))
            for topic in sorted(used)
            if topic in facts.partition_counts
        }
        return Stretch(topics, starts, records, committed, tuple(inputs), outputs, count)

    def _state(self, mark: PositionMark, at: TopicPartition, spec: StoreSpec, budget: "_Budget") -> tuple[int, Block]:
        """Return the state of a changelog at the mark, and the offset at which it begins to end where it ended.

        Raises:
            InputError: compaction has changed it since.
        """
        end = mark.ends.get(at, 0)
        blocks = self.reader.blocks(at, min(self.facts.starts.get(at, 0), end), end)
        state = live_entries(blocks, has_versions=spec.kind.has_versions)
        if digest(state) != mark.digests.get(at, digest(block_of([]))):
            raise InputError(
                f"{at} was compacted since the mark: its state at offset {end} cannot be read any more; make a mark "
                "again, and compare sooner (or raise segment.ms and min.compaction.lag.ms of the topic before)"
            )
        rows = budget.rows([state])
        return end - len(rows), block_of(rows)

    def _output_partitions(self) -> list[TopicPartition]:
        return [at for topic in self.successor.outputs() for at in self.facts.partitions(topic)]


@frozen
class _Budget:
    """How many records may be in memory."""

    most: int
    _taken: list[int] = field(factory=lambda: [0])

    def rows(self, blocks: Any) -> list[tuple[Any, ...]]:
        """Return the records of blocks, each (key, value, timestamp_ms, headers).

        Raises:
            InputError: they are too many.
        """
        rows = []
        for block in blocks:
            self._taken[0] += len(block)
            if self._taken[0] > self.most:
                raise InputError(
                    f"a shadow over this stretch needs more than {self.most:,} records in memory; make a mark later "
                    "(--mark), or raise --max-records"
                )
            rows += [row[1:] for row in block.rows()]
        return rows


def _global_topics(topology: Topology) -> list[str]:
    return [topic for store in topology.global_stores.values() for topic in store.source.topics]


def _times(metadata: Mapping[TopicPartition, str]) -> tuple[int, dict[str, int]]:
    """Return how many offsets have known metadata, and the times up to which windows were emitted, by store."""
    timed_count = 0
    times = dict[str, int]()
    for at, text in metadata.items():
        try:
            checkpoint = Checkpoint.from_metadata({at: text})
        except StreamsError:
            continue
        timed_count += checkpoint.partition_times[at] >= 0
        for name, time_ms in checkpoint.operator_times.items():
            if name.startswith("/"):
                times[name[1:]] = max(time_ms, times.get(name[1:], time_ms))
    return timed_count, times


def _of_caches(nodes: Mapping[str, tuple[str, ...]]) -> Finding:
    behind = "; ".join(f"{name} behind {' and '.join(stores)}" for name, stores in nodes.items())
    says = f"has no record cache; with one, results of these nodes depend on commits, so Java's may differ: {behind}"
    return Finding(Level.NOTE, "shadow", says)


def _of_shadow(differences: list[OutputDifference], successor: checks.Successor) -> list[Finding]:
    findings = []
    for item in differences:
        if item.is_wrong:
            keys = item.last + item.only_there + item.only_here
            says = f"{keys:,} of {item.keys:,} keys end otherwise here; {item.example}"
            findings.append(
                Finding(Level.CANNOT, f"output {item.topic}", says, "compare what both do to such a record")
            )
        elif item.others:
            says = f"{item.others:,} of {item.keys:,} keys have other results before the same last one"
            do = "with several partitions, or at least once after a crash, this may be right"
            findings.append(Finding(Level.BUT, f"output {item.topic}", says, do))
    if successor.chooses_topics:
        says = "a sink chooses the topic of each record: outputs in such topics are not compared"
        findings.append(Finding(Level.NOTE, "shadow", says))
    return findings
