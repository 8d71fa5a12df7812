"""Read-only access to the data directory of an embedded broker.

Opening a broker recovers from a crash, ends transactions and applies retention.  ``OfflineTopics.opened`` therefore
opens a broker on a copy of one partition; the data directory is not changed.
"""

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from attrs import field, frozen

from streams.broker.directory import LOCK_FILE
from streams.broker.embedded import EmbeddedBroker
from streams.broker.logs.checkpoint import write_checkpoint
from streams.broker.logs.recovery import START_FILE, noted_offset, segment_paths
from streams.broker.logs.segment import Segment
from streams.broker.topics import LOGS_FOLDER, TOPICS_FILE
from streams.core.blocks.records import TopicPartition
from streams.core.clock import Clock
from streams.core.errors import ConfigError, StateLockedError, UnknownTopicError


@frozen
class OfflineTopics:
    """The topics in the data directory of a broker that is not running."""

    data_dir: Path
    _document: dict[str, Any] = field(repr=False)

    def partition_count(self, topic: str) -> int:
        """Return the partition count of a topic.

        Raises:
            UnknownTopicError: the topic does not exist.
        """
        entry = self._document["topics"].get(topic)
        if entry is None:
            names = ", ".join(sorted(name for name in self._document["topics"] if not name.startswith("__")))
            raise UnknownTopicError(f"{self.data_dir}: has no topic {topic!r}; it has {names or 'none'}")
        return int(entry["partitions"])

    def folders(self) -> Iterator[Path]:
        """Yield the folders of all partitions with file storage."""
        for topic, entry in self._document["topics"].items():
            for number in range(int(entry["partitions"]) if entry["storage"] == "file" else 0):
                yield self.data_dir / LOGS_FOLDER / str(TopicPartition(topic, number))

    @contextmanager
    def opened(
        self, partition: TopicPartition, scratch: Path, offset: int = 0, clock: Clock | None = None
    ) -> Iterator[EmbeddedBroker]:
        """Open a broker on a temporary copy of one partition, in the directory ``scratch``.

        The copy has the records from ``offset`` on, and possibly earlier ones.  The other partitions of the topic
        are empty.  An unfinished transaction stays open.

        Raises:
            DamagedLogError: records of the partition are damaged or missing.
            ConfigError: the topic has a user-defined storage or serialization.
        """
        entry = self._document["topics"][partition.topic]
        with tempfile.TemporaryDirectory(dir=scratch, prefix=".partition-") as name:
            copy = Path(name)
            (copy / TOPICS_FILE).write_text(json.dumps({**self._document, "topics": {partition.topic: entry}}))
            records = self.data_dir / LOGS_FOLDER / str(partition)
            if records.is_dir():
                folder = copy / LOGS_FOLDER / str(partition)
                shutil.copytree(records, folder, ignore=partial(_below, offset))
                _begin_at_first_segment(folder)
            for number in range(int(entry["partitions"])):
                if number != partition.partition:
                    other = copy / LOGS_FOLDER / str(TopicPartition(partition.topic, number))
                    other.mkdir(parents=True)
                    Segment.path_of(other, 0).touch()
            with EmbeddedBroker(copy, clock=clock, maintenance_interval_ms=None, auto_create_topics=False) as broker:
                yield broker


def _begin_at_first_segment(folder: Path) -> None:
    first = min((int(path.stem) for path in segment_paths(folder)), default=0)
    if first > noted_offset(folder / START_FILE):
        write_checkpoint(folder / START_FILE, first, is_durable=False)


def _below(offset: int, folder: str, names: list[str]) -> list[str]:
    """Return the names of segment files that end at or below an offset, based on the base offsets in the names."""
    segments = sorted(name for name in names if name.endswith(".log"))
    return [name for name, after in pairwise(segments) if int(Path(after).stem) <= offset]


@contextmanager
def offline_topics(data_dir: Path) -> Iterator[OfflineTopics]:
    """Lock the data directory of a broker that is not running, and read its topics.

    Raises:
        ConfigError: the directory is not the data directory of a broker.
        StateLockedError: a broker uses the directory.
    """
    lock = data_dir / LOCK_FILE
    topics = data_dir / TOPICS_FILE
    if not lock.exists() or not topics.exists():
        raise ConfigError(f"{data_dir}: no embedded broker has kept topics here")
    descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            raise StateLockedError(f"data directory {data_dir} is in use by a broker: stop that one first") from error
        try:
            document = json.loads(topics.read_text())
            document["topics"].items()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"topics' file {topics} cannot be read: {error}") from error
        yield OfflineTopics(data_dir, document)
    finally:
        os.close(descriptor)
