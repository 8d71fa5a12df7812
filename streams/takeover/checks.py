"""Checks of a takeover: what the facts of a cluster say about an application that goes on with another's state.

Pure: facts and readings are given, findings come back.  The checks at the start are those of the runtime.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from attrs import frozen

from streams.comparison import Finding, Level
from streams.core.blocks.key_places import KeyPlaces
from streams.core.blocks.marks import Format, format_of
from streams.core.blocks.records import TopicPartition
from streams.core.clock import VirtualClock
from streams.core.errors import StreamsError, TopologyError
from streams.core.migrations import FIRST_VERSION, version_of
from streams.core.serdes.display import key_text, reader, value_text
from streams.core.serdes.serdes import PinnedSerde, WindowedSerde
from streams.core.settings.config import StreamsConfig
from streams.runtime import ApplicationPlan, Checkpoint, Plans, check_groups, is_of_others, misfit
from streams.state import StoreSpec
from streams.takeover.facts import Facts
from streams.takeover.readings import Reading
from streams.topology import SinkNode, SourceNode, Topology

_RUNS = ("Empty", "Dead")
#: Brokers accept no more (offset.metadata.max.bytes).
_MOST_METADATA = 4096


@frozen
class Successor:
    """The application here: its topology, and its plan over the topics of the cluster, None if there is none."""

    topology: Topology
    config: StreamsConfig
    plan: ApplicationPlan | None
    #: Why there is no plan.
    error: str = ""

    @classmethod
    def of(cls, topology: Topology, config: StreamsConfig, partition_counts: Mapping[str, int]) -> "Successor":
        """Plan an application as it would be at its start."""
        plans = Plans(topology, config, VirtualClock(0))
        try:
            return cls(topology, config, plans.of(plans.layout(partition_counts)))
        except TopologyError as error:
            return cls(topology, config, None, str(error))

    def changelogs(self) -> dict[str, StoreSpec]:
        """Return the stores with a changelog, by the topic that is it."""
        if self.plan is None:
            return {}
        specs = {spec.name: spec for spec in self.topology.stores.values() if spec.has_changelog}
        return {self.plan.changelog(name): spec for name, spec in specs.items()}

    def inputs(self) -> dict[TopicPartition, SourceNode]:
        """Return the partitions that tasks read, with their sources."""
        if self.plan is None:
            return {}
        sources = {}
        for task_id in sorted(self.plan.groups):
            for item in self.plan.inputs(task_id):
                node = self.topology.nodes[item.source]
                assert isinstance(node, SourceNode)
                sources[item.partition] = node
        return sources

    def internal_inputs(self) -> dict[TopicPartition, SourceNode]:
        """Return those of the partitions that tasks read which the application itself writes."""
        topics = () if self.plan is None else self.plan.repartition_topics()
        return {at: node for at, node in self.inputs().items() if at.topic in topics}

    def outputs(self) -> list[str]:
        """Return the topics that sinks write and that are not internal, in their order."""
        nodes = [node for node in self.topology.nodes.values() if isinstance(node, SinkNode)]
        names = dict.fromkeys(node.topic for node in nodes if node.topic is not None)
        return [name for name in names if name not in self.topology.internal_topics]

    def shown(self, topic: str) -> Callable[[bytes | None, bytes | None], str]:
        """Return a function that shows key and value of a record of an output as text."""
        nodes = self.topology.nodes.values()
        node = next(node for node in nodes if isinstance(node, SinkNode) and node.topic == topic)
        to_key = reader(node.key_serde)
        to_value = reader(node.value_serde)
        return lambda key, value: f"{key_text(to_key(key), node.key_serde)}: {value_text(to_value(value))}"

    @property
    def chooses_topics(self) -> bool:
        """Whether a sink chooses the topic of each record."""
        return any(isinstance(node, SinkNode) and node.topic is None for node in self.topology.nodes.values())


def of_group(facts: Facts) -> Iterator[Finding]:
    """Check that the other application is stopped, and that it has committed something."""
    if facts.members or facts.state not in _RUNS:
        members = f", with {_count(len(facts.members), 'member')}" if facts.members else ""
        says = f"is {facts.state}{members}: both would process the same records"
        yield Finding(
            Level.CANNOT, f"group {facts.application_id}", says, "stop all members, and wait until it is empty"
        )
    if not facts.committed:
        says = "has no committed offsets: there is nothing to take over"
        do = "check the application id, and that its offsets have not expired (offsets.retention.minutes)"
        yield Finding(Level.CANNOT, f"group {facts.application_id}", says, do)


def of_start(successor: Successor, facts: Facts) -> Iterator[Finding]:
    """Check by the rules of the runtime whether the application would start on the topics of the cluster."""
    plan = successor.plan
    if plan is None:
        yield Finding(Level.CANNOT, "start", f"the application does not start on these topics: {successor.error}")
        return
    for item in plan.internal_topics():
        has = facts.partition_counts.get(item.name)
        if has is not None and has != item.partitions:
            says = f"has {_count(has, 'partition')}, and the topology here needs {item.partitions}"
            yield Finding(Level.CANNOT, f"topic {item.name}", says, "give the inputs their former partition counts")
        configs = facts.configs.get(item.name, {})
        reason = misfit(item.config, configs) if configs else None
        if reason is not None:
            yield Finding(Level.CANNOT, f"topic {item.name}", reason, "see `streams topics alter`")
    try:
        check_groups(plan, facts.committed)
    except StreamsError as error:
        yield Finding(Level.CANNOT, "start", f"the application does not start: {error}")


def of_topics(successor: Successor, facts: Facts) -> Iterator[Finding]:
    """Check that each has the internal topics of the other."""
    if successor.plan is None:
        return
    topology = successor.topology
    changelogs = successor.changelogs()
    for topic, spec in changelogs.items():
        if topic not in facts.partition_counts and facts.committed:
            says = f"has no changelog {topic}: it would start empty, and results would be wrong"
            yield Finding(Level.CANNOT, f"store {spec.name}", says, "give it the name that it has there")
    for topic in topology.internal_topics:
        name = successor.plan.physical_topic(topic)
        if name not in facts.partition_counts:
            yield Finding(Level.NOTE, f"topic {name}", "does not exist; it is created at the start")
    for internal in facts.own:
        if internal.store is not None and internal.name not in changelogs:
            says = f"({internal.name}) has no store here: its state is left behind"
            yield Finding(
                Level.BUT, f"store {internal.store}", says, "declare it, or delete the topic when it is not needed"
            )
        elif internal.topic is not None and internal.topic not in topology.internal_topics:
            says = "is not read here: what was not processed yet would stay there"
            yield Finding(Level.BUT, f"topic {internal.name}", says, "declare it with the same name")


def of_offsets(successor: Successor, facts: Facts) -> Iterator[Finding]:
    """Check committed offsets against the topics, and their metadata."""
    inputs = successor.inputs()
    if not inputs or not facts.committed:
        return
    for at in inputs:
        start = facts.starts.get(at, 0)
        end = facts.ends.get(at, 0)
        item = facts.committed.get(at)
        if item is None and start < end:
            says = f"has {_count(end - start, 'record')} and no committed offset: it is read from its beginning"
            yield Finding(Level.BUT, str(at), says, "commit an offset, if that is wrong (`streams groups`)")
        elif item is not None and item.offset < start:
            says = f"begins at offset {start}, and {item.offset} is committed: the records between them are deleted"
            yield Finding(Level.CANNOT, str(at), says, "they are lost; see `streams reset`")
        elif item is not None and item.offset > end:
            says = f"ends at offset {end}, and {item.offset} is committed: it was deleted and created again"
            yield Finding(Level.CANNOT, str(at), says, "see `streams reset`")
    for topic in sorted({at.topic for at in facts.committed} - {at.topic for at in inputs}):
        says = "has committed offsets, and is not read here"
        yield Finding(Level.BUT, f"topic {topic}", says, "declare it, if it is an input")
    for at, item in facts.committed.items():
        if is_of_others(item.metadata):
            says = f"has metadata of another tool ({item.metadata[:40]!r}): stream time begins anew there"
            yield Finding(Level.BUT, str(at), says, "windows may accept records that were late before")
    try:
        Checkpoint.from_metadata({at: item.metadata for at, item in facts.committed.items()})
    except StreamsError as error:
        yield Finding(Level.CANNOT, "committed offsets", str(error))
    for at, stable in facts.stable.items():
        if stable < facts.ends.get(at, stable):
            says = f"has an open transaction from offset {stable} on, of a member that was killed"
            yield Finding(
                Level.CANNOT, str(at), says, "wait until the broker aborts it (transaction.timeout.ms), and try again"
            )


def of_readings(readings: Iterable[Reading]) -> Iterator[Finding]:
    """Check that all entries could be read, and that keys keep their bytes."""
    for reading in readings:
        where = f"topic {reading.topic}" if reading.store is None else f"store {reading.store}"
        if reading.unreadable:
            count = _count(reading.unreadable, "record")
            says = f"{count} of {reading.topic} cannot be read, the first one: {reading.first}"
            yield Finding(Level.CANNOT, where, says, "declare the serdes that the application had")
        if reading.other_keys:
            count = _count(reading.other_keys, "key")
            says = f"{count} would be written with other bytes and not be found: {reading.example}"
            yield Finding(Level.CANNOT, where, says, "declare the key serde that the application had")
        if reading.with_headers:
            says = (
                f"{_count(reading.with_headers, 'entry', 'entries')} of {reading.topic} with headers "
                "(a store with headers in Java): values fit, headers are not kept here"
            )
            do = "declare the store of a processor with headers, such as timestamped_key_value_store_with_headers"
            yield Finding(Level.BUT, where, says, do)
        if reading.other_values and not reading.other_keys:
            says = f"{_count(reading.other_values, 'value')} would be written with other bytes ({reading.example})"
            yield Finding(Level.NOTE, where, says, "check that the other application reads both")


def of_keys(inputs: Iterable[KeyPlaces]) -> Iterator[Finding]:
    """Check that the keys of inputs that stores read directly are in the partitions where they are looked for."""
    for places in inputs:
        if places.first is not None:
            says = f"has keys in other partitions than that of their hash: {places.summary}; key {places.first}"
            do = "their joins find nothing, in Java too; set misplaced_keys='ignore' if it is meant so"
            yield Finding(Level.BUT, f"topic {places.topic}", says, do)


# --- the other direction ------------------------------------------------------------------


def of_give_back(successor: Successor, facts: Facts) -> Iterator[Finding]:
    """Check that Java has what is needed to go on with what the application here has left."""
    plan, topology = successor.plan, successor.topology
    for spec in topology.stores.values():
        if spec.has_changelog:
            yield from _store(topology, spec)
    for at, item in facts.committed.items():
        if len(item.metadata.encode()) > _MOST_METADATA:
            yield Finding(Level.CANNOT, str(at), f"has {len(item.metadata)} bytes of metadata, more than Java commits")
    yield from _ahead(facts)
    if plan is None:
        return
    for task_id, partitions in sorted(plan.groups.items()):
        moved = [at for at in partitions if at.partition != task_id.partition]
        if moved:
            says = f"reads {', '.join(map(str, moved))}: in Java each task reads the partitions of its number"
            yield Finding(
                Level.CANNOT, f"task {task_id}", says, "Java needs the partition grouper too, or another application id"
            )
    for internal in facts.own:
        if internal.name.endswith(".lanes"):
            says = "is left from a run over files, and may have records that Java does not read"
            yield Finding(Level.CANNOT, f"topic {internal.name}", says, "finish with a live run here first")


def _ahead(facts: Facts) -> Iterator[Finding]:
    """Find records that were read in step, before others with lower offsets."""
    try:
        lanes = Checkpoint.from_metadata({at: item.metadata for at, item in facts.committed.items()}).lanes
    except StreamsError:
        # Said already (``of_offsets``).
        return
    for at, ahead in lanes.items():
        says = (
            f"has records processed beyond the committed offset, of {_count(len(ahead), 'task')} upstream: Java would "
            "process them again"
        )
        yield Finding(Level.CANNOT, str(at), says, "let the application here process all its input before it stops")


def _store(topology: Topology, spec: StoreSpec) -> Iterator[Finding]:
    where = f"store {spec.name}"
    users = ", ".join(topology.store_users.get(spec.name, ())) or "no operator"
    for what, serde in (("keys", spec.key_serde), ("values", spec.value_serde)):
        own = format_of(serde)
        if isinstance(own, Format):
            says = (
                f"(of {users}) has {what} in a format of this library ({own.name}): Kafka Streams has no such operator"
            )
            yield Finding(Level.CANNOT, where, says, "remove the operator before going back")
        elif isinstance(serde.inner if isinstance(serde, WindowedSerde) else serde, PinnedSerde):
            says = f"(of {users}) has {what} of no declared type, which only this library reads"
            yield Finding(Level.CANNOT, where, says, "declare their type, and go on here under another application id")
    if spec.calendar is not None:
        says = f"(of {users}) has windows of a calendar ({spec.calendar}), which Kafka Streams has not"
        yield Finding(Level.BUT, where, says, "give Java a subclass of Windows that has the same ones")
    if version_of(spec.migrations) != FIRST_VERSION:
        says = f"(of {users}) has values of version {version_of(spec.migrations)}: Java needs the migrated type"
        yield Finding(Level.BUT, where, says, "change the serde in Java first")
    if spec.ttl_ms >= 0:
        says = f"(of {users}) forgets entries after {spec.ttl_ms} ms: Java keeps them"
        yield Finding(Level.BUT, where, says, "expire them in Java by a punctuation")


def _count(number: int, what: str, many: str = "") -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {many or f'{what}s'}"


def worst_first(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return findings without repetitions, the most severe first."""
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: -finding.level))
