"""A replay as a job of OpenLineage: what it reads, and where its outputs are. Needs the extra ``openlineage``."""

from collections.abc import Iterator

from streams.replay.history.inputs import Archive, Files, Input, KafkaTopic
from streams.replay.run.session import ReplaySession
from streams.telemetry.lineage import LineageDataset, LineageJob, topics_of


def lineage_job(session: ReplaySession) -> LineageJob:
    """Return what a replay reads and writes: files, archives, topics and tables; the outputs are in its folder."""
    _, written = topics_of(session.topology)
    inputs = [dataset for name, source in session.inputs.sources.items() for dataset in datasets_of(name, source)]
    outputs = [LineageDataset.at(session.root.child(name).uri, name) for name in written]
    return LineageJob("BATCH", "REPLAY", inputs, outputs)


def datasets_of(topic: str, source: Input) -> Iterator[LineageDataset]:
    """Yield the datasets of the history of a topic."""
    if isinstance(source, Files):
        yield from (LineageDataset.at(path, topic) for path in source.paths)
    elif isinstance(source, Archive):
        yield LineageDataset.at(source.path, topic)
    elif isinstance(source, KafkaTopic):
        yield LineageDataset(f"kafka://{source.bootstrap_servers.partition(',')[0].strip()}", source.topic, topic)
    else:
        # A table that is an object of the program has no name but that of its topic.
        name = source.source if isinstance(source.source, str) else source.label or topic
        yield LineageDataset("spark", name.removeprefix("table:"), topic)
