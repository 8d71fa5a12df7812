"""The events of OpenLineage of a replay: what it reads, and where its outputs are. Needs the extra ``openlineage``."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from streams.core.clock import SystemClock
from streams.core.threads import SystemThreads
from streams.replay.history.inputs import Archive, Files, Input, KafkaTopic
from streams.replay.run.session import ReplaySession
from streams.replay.storage.places import Place
from streams.telemetry.lineage import LineageDataset, LineageEvents, LineageJob, topics_of


@contextmanager
def lineage_events(session: ReplaySession) -> Iterator[None]:
    """Send START, and at the end COMPLETE, or FAIL with the error."""
    events = LineageEvents(session.config, session.topology, SystemClock(), SystemThreads(), lineage_job(session))
    events.start()
    try:
        yield
    except BaseException as error:
        events.close(error)
        raise
    events.close(None)


def lineage_job(session: ReplaySession) -> LineageJob:
    """Return what a replay reads and writes: files, archives, topics and tables; the outputs are in its folder."""
    _, written = topics_of(session.topology)
    inputs = [found for name, given in session.inputs.given.items() for found in datasets_of(name, given)]
    outputs = [_at(session.root.child(name).uri, name) for name in written]
    return LineageJob("BATCH", "REPLAY", inputs, outputs)


def datasets_of(topic: str, given: Input) -> Iterator[LineageDataset]:
    """Yield the datasets of the history of a topic."""
    if isinstance(given, Files):
        yield from (_at(path, topic) for path in given.paths)
    elif isinstance(given, Archive):
        yield _at(given.path, topic)
    elif isinstance(given, KafkaTopic):
        yield LineageDataset(f"kafka://{given.bootstrap_servers.partition(',')[0].strip()}", given.topic, topic)
    else:
        # A table that is an object of the program has no name but that of its topic.
        name = given.source if isinstance(given.source, str) else given.label or topic
        yield LineageDataset("spark", name.removeprefix("table:"), topic)


def _at(uri: str, topic: str) -> LineageDataset:
    """Return the dataset of a file or folder, named as OpenLineage does."""
    place = Place(uri)
    if place.is_local:
        return LineageDataset("file", os.path.abspath(place.uri), topic)
    scheme, _, rest = uri.partition("://")
    bucket, _, path = rest.partition("/")
    return LineageDataset(f"{scheme}://{bucket}", path or "/", topic)
