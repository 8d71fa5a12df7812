"""How the input of a case is cut into blocks, and what a run in blocks must have in common with it.

Kafka Streams answered the cases one record at a time, everything that follows from a record
before the next.  In blocks each sub-topology has a whole block before the next one sees it.  That
changes nothing where every task gets its records in the same order, which is read off the graph
and the timestamps alone.  Pure.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

from attrs import define, field, frozen

from streams.topology.graph import SinkNode, SourceNode
from streams.topology.subtopologies import SubTopology
from streams.topology.topology import Topology
from tests.conformance.play import Row, piped_row
from tests.conformance.values import TopicSerdes


class Agreement(Enum):
    """What a run in blocks has in common with the run record by record."""

    #: Every topic has the same records in the same order.
    EXACT = "exact"
    #: The same, but a topic that several sub-topologies write has them in another order among each other.
    INTERLEAVED = "interleaved"
    #: The last record of each key and the stores at the end: how often a record cache is flushed
    #: decides which of the updates in between are seen.
    CACHED = "cached"
    #: A processor looks at the stream time, which the driver has in common for all sub-topologies and
    #: each task has for itself.
    TIMES = "times"
    #: Some task gets what comes on several ways from one block, in an order that the block decides.
    MEETING = "meeting"


@frozen
class Segment:
    """Input that is handed over at once: rows by topic, and the script's steps that they are."""

    rows: dict[str, list[Row]]
    steps: tuple[int, ...]


@define
class Flow:
    """The ways from the source topics of an application through its sub-topologies."""

    topology: Topology
    subs: Sequence[SubTopology]
    #: Names by which internal topics are called outside, without the application id.
    _reached: dict[str, frozenset[str]] = field(factory=dict)

    @property
    def global_topics(self) -> set[str]:
        """Topics of global stores."""
        return {topic for store in self.topology.global_stores.values() for topic in store.source.topics}

    def reached(self, topic: str) -> frozenset[str]:
        """Return all topics that a record of a topic may lead to, itself included."""
        if topic not in self._reached:
            seen = {topic}
            ahead = [topic]
            while ahead:
                name = ahead.pop()
                for sub in self._readers(name):
                    new = set(self._written(sub)) - seen
                    seen |= new
                    ahead += new
            self._reached[topic] = frozenset(seen)
        return self._reached[topic]

    def meets(self, topics: Iterable[str]) -> bool:
        """Whether some task gets, of input to these topics, records whose order the blocks decide.

        What lies in the topics themselves is ordered by its timestamps; beyond them a task must
        get all from one topic, that topic from one task, and a global store nothing.
        """
        direct = set(topics)
        reached = frozenset[str]().union(*(self.reached(topic) for topic in direct))
        active = [sub for sub in self.subs if not sub.is_global and reached & set(sub.source_topics)]
        writers = Counter(topic for sub in active for topic in self._written(sub))
        for sub in active:
            ways = reached & set(sub.source_topics)
            derived = {topic for topic in ways if writers[topic]}
            if derived and (len(ways) > 1 or any(writers[topic] > 1 for topic in derived)):
                return True
        return any(writers[topic] for topic in self.global_topics)

    def shared_outputs(self, topics: Iterable[str]) -> set[str]:
        """Return topics that several tasks write on account of input to these topics."""
        reached = frozenset[str]().union(*(self.reached(topic) for topic in topics))
        active = [sub for sub in self.subs if not sub.is_global and reached & set(sub.source_topics)]
        writers = Counter(topic for sub in active for topic in self._written(sub))
        return {topic for topic, count in writers.items() if count > 1}

    def _readers(self, topic: str) -> list[SubTopology]:
        return [sub for sub in self.subs if not sub.is_global and topic in sub.source_topics]

    def _written(self, sub: SubTopology) -> tuple[str, ...]:
        """Return what a sub-topology writes: a sink that chooses by record may choose any topic."""
        nodes = [self.topology.nodes[name] for name in sub.nodes]
        if any(isinstance(node, SinkNode) and node.topic_for is not None for node in nodes):
            return (*sub.sink_topics, "")
        return sub.sink_topics


def has_plain_times(topology: Topology, config: dict[str, Any]) -> bool:
    """Whether records are taken by the timestamps that they were sent with, none of them skipped."""
    sources = [node for node in topology.nodes.values() if isinstance(node, SourceNode)]
    return all(node.extractor is None for node in sources) and not (
        config.keys() & {"default_ts_extractor", "deserialization_handler", "max_task_idle_ms"}
    )


def segments(case: dict[str, Any], flow: Flow, *, joins_topics: bool) -> list[Segment | int]:
    """Cut a script into segments; a step that is no ``pipe`` comes as its number.

    A segment is as long as it can be: pipes to one topic, and with ``joins_topics`` also those to
    others, while each change of topic brings a higher timestamp than all before, so that the
    lowest head timestamp gives the order of the script.
    """
    serdes = {name: TopicSerdes.of(spec) for name, spec in case["topics"].items()}
    result: list[Segment | int] = []
    rows: dict[str, list[Row]] = {}
    steps: list[int] = []
    last, highest_ms = "", -1

    def end() -> None:
        if steps:
            result.append(Segment(dict(rows), tuple(steps)))
            rows.clear()
            steps.clear()

    for number, step in enumerate(case["script"]):
        if "pipe" not in step:
            end()
            result.append(number)
            continue
        topic, row = piped_row(step["pipe"], serdes)
        if steps and topic != last:
            names = {*rows, topic}
            if (
                not joins_topics
                or row[2] <= highest_ms
                or names & flow.global_topics
                or (flow.meets(names) and not any(flow.meets([name]) for name in names))
                or flow.shared_outputs(names) - flow.shared_outputs([topic]) - flow.shared_outputs(rows)
            ):
                end()
        if not steps:
            highest_ms = -1
        rows.setdefault(topic, []).append(row)
        steps.append(number)
        last, highest_ms = topic, max(highest_ms, row[2])
    end()
    return result


def singles(parts: Iterable[Segment | int]) -> list[Segment | int]:
    """Cut segments of one topic each into their records."""
    result: list[Segment | int] = []
    for part in parts:
        if isinstance(part, int):
            result.append(part)
            continue
        ((topic, rows),) = part.rows.items()
        result += [Segment({topic: [row]}, (step,)) for row, step in zip(rows, part.steps, strict=True)]
    return result


def agreement(case: dict[str, Any], flow: Flow, parts: Iterable[Segment | int]) -> Agreement:
    """Return what a run of these segments must have in common with the run record by record."""
    if _looks_at_stream_time(case) and sum(not sub.is_global for sub in flow.subs) > 1:
        return Agreement.TIMES
    several = [list(part.rows) for part in parts if isinstance(part, Segment) and len(part.steps) > 1]
    if any(flow.meets(topics) for topics in several):
        return Agreement.MEETING
    if (case.get("config") or {}).get("cache_max_bytes") and several:
        return Agreement.CACHED
    if any(flow.shared_outputs(topics) for topics in several):
        return Agreement.INTERLEAVED
    return Agreement.EXACT


def _looks_at_stream_time(case: dict[str, Any]) -> bool:
    """Whether a processor is told stream time, or is woken by it."""
    functions = [op["fn"] for op in case["topology"] if op["op"] in ("process", "process_values", "add_processor")]
    return any(fn[0] == "ctx" or "stream" in fn[1:2] for fn in functions)
