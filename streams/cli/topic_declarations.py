"""The external topics of a topology and their declarations."""

from collections.abc import Iterable
from typing import Any

from streams.cli.mistakes import UsageError
from streams.core.nearest import suggestion
from streams.core.settings.config import StreamsConfig
from streams.core.topic import Topic
from streams.topology import SinkNode, SourceNode, Topology


def _sources(topology: Topology) -> list[SourceNode]:
    return [*topology.sources(), *(store.source for store in topology.global_stores.values())]


def source_topics(topology: Topology) -> set[str]:
    """Return the external input topics of a topology by name."""
    names = {name for source in _sources(topology) for name in source.topics}
    return names - topology.internal_topics.keys()


def sink_topics(topology: Topology) -> set[str]:
    """Return the names of the external output topics of a topology."""
    names = {sink.topic for sink in topology.sinks() if sink.topic is not None}
    return names - topology.internal_topics.keys()


def declared_source(topology: Topology, name: str) -> Topic[Any, Any]:
    """Return a source topic of the topology with its types.

    Raises:
        UsageError: the topology does not read the topic.
    """
    declared = _source_in(topology, name)
    if declared is not None:
        return declared
    sources = source_topics(topology)
    if name in sink_topics(topology):
        raise UsageError(f"--input {name}: the topology writes this topic and does not read it; did you mean --output?")
    if name in topology.internal_topics:
        raise UsageError(f"--input {name}: this topic is internal; {_listed('sources', sources)}")
    meant = suggestion(name, sorted(sources), " (did you mean {}?)")
    raise UsageError(f"--input: there is no topic {name!r}{meant}; {_listed('sources', sources)}")


def declared_output(topology: Topology, name: str, config: StreamsConfig) -> Topic[Any, Any] | None:
    """Return a topic that the topology writes, with its types if they are known.

    Raises:
        UsageError: the topology does not write the topic.
    """
    sinks = [sink for sink in topology.sinks() if sink.topic == name]
    written = sink_topics(topology)
    if sinks and name in written:
        return topology.topics.get(name) or _topic_of(name, sinks[0])
    if name == config.errors_dead_letter_queue_topic_name:
        return None
    if any(sink.topic_for is not None for sink in topology.sinks()):
        return topology.topics.get(name)  # The topic is chosen per record.
    if name in source_topics(topology):
        raise UsageError(f"--output {name}: the topology reads this topic and does not write it; did you mean --input?")
    if name in topology.internal_topics:
        raise UsageError(f"--output {name}: this topic is internal; {_listed('outputs', written)}")
    meant = suggestion(name, sorted(written), " (did you mean {}?)")
    raise UsageError(f"--output: the topology writes no topic {name!r}{meant}; {_listed('outputs', written)}")


def topic_in(topology: Topology, name: str) -> Topic[Any, Any] | None:
    """Return an external topic that the topology reads or writes, with its types; None if it does neither."""
    if name in topology.internal_topics:
        return None
    source = _source_in(topology, name)
    if source is not None:
        return source
    sink = next((sink for sink in topology.sinks() if sink.topic == name), None)
    return topology.topics.get(name) or (None if sink is None else _topic_of(name, sink))


def _source_in(topology: Topology, name: str) -> Topic[Any, Any] | None:
    """Return an external topic that the topology reads, by name or by pattern, with its types; None if it does not."""
    sources = source_topics(topology)
    for source in _sources(topology):
        by_pattern = source.pattern is not None and source.pattern.fullmatch(name)
        if by_pattern or (name in source.topics and name in sources):
            return topology.topics.get(name) or _topic_of(name, source)
    return None


def _topic_of(name: str, node: SourceNode | SinkNode) -> Topic[Any, Any]:
    return Topic(name, key=node.key_serde, value=node.value_serde)


def _listed(what: str, names: Iterable[str]) -> str:
    listed = ", ".join(sorted(names))
    return f"the topology's {what} are {listed}" if listed else f"the topology has no {what}"
