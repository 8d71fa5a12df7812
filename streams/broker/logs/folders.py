"""Partition folders with topic metadata, from which a lost topics file can be rebuilt.

In addition to segments, each folder contains ``partition.metadata``: topic name, ID, settings and partition count.  A
folder that is not in the topics file is adopted if all partitions of its topic are present.  A folder with records is
deleted only if its topic was deleted.
"""

import json
import logging
import re
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from attrs import define

from streams.broker.logs.files import write_atomically
from streams.broker.logs.recovery import damaged
from streams.core.blocks.records import TopicPartition
from streams.core.errors import ConfigError

_LOGGER = logging.getLogger(__name__)

METADATA_FILE: Final = "partition.metadata"
_VERSION: Final = 1
_TOPICS_VERSION: Final = 1
_FOLDER_NAME: Final = re.compile(r"([A-Za-z0-9._-]{1,249})-(\d{1,9})", re.ASCII)

#: Stored topic metadata: partitions, config, storage, ID and serialization.
Entry = dict[str, Any]


def checked_entry(place: object, name: str, entry: object) -> Entry:
    """Validate and return stored topic metadata; ``place`` is the file that error messages name.

    Raises:
        ConfigError: the metadata is invalid.
    """
    wrong = _wrong(entry)
    if wrong:
        raise ConfigError(
            f"{place}: topic {name!r}: {wrong}; fix it or restore the file (without it topics are found again by the "
            f"{METADATA_FILE} of their folders)"
        )
    assert isinstance(entry, dict)
    return entry


def _wrong(entry: object) -> str:
    if not isinstance(entry, dict):
        return "no object"
    partitions = entry.get("partitions")
    config = entry.get("config")
    topic_id = entry.get("id")
    if not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < 1:
        return f"partitions is {partitions!r}, a number of at least 1 is needed"
    if not isinstance(config, dict) or not all(isinstance(text, str) for text in config.values()):
        return f"config is {config!r}, settings and their values as text are needed"
    if entry.get("storage") not in ("array", "linked", "file", "custom"):
        return f"storage is {entry.get('storage')!r}"
    if not (isinstance(topic_id, str) and re.fullmatch(r"[0-9a-f]{32}", topic_id)):
        return f"id is {topic_id!r}, 32 hexadecimal digits are needed"
    if entry.get("serialization") not in (None, "custom"):
        return f"serialization is {entry['serialization']!r}"
    return ""


def topics_document(entries: Mapping[str, Entry], deleting: Iterable[str]) -> bytes:
    """Return the content of the topics file: topics by name, and the IDs of topics that are being deleted."""
    return json.dumps({"version": _TOPICS_VERSION, "topics": entries, "deleting": sorted(deleting)}, indent=1).encode()


def stored_topics(path: Path) -> tuple[dict[str, Entry], set[str]]:
    """Read the topics file: topics by name, and the IDs of topics that are being deleted; both empty without a file.

    Raises:
        ConfigError: the file or an entry is invalid.
    """
    if not path.exists():
        return {}, set()
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
        if document["version"] != _TOPICS_VERSION:
            raise ValueError(f"format version {document['version']}, this program reads {_TOPICS_VERSION}")
        entries = dict(document["topics"].items())
        deleting = set(document.get("deleting", ()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"topics' file {path} cannot be read: {error}; restore it, or move it away: topics are then found again by "
            f"the {METADATA_FILE} of their folders"
        ) from error
    for name, entry in entries.items():
        checked_entry(f"topics' file {path}", name, entry)
    return entries, deleting


def write_metadata(folder: Path, topic: str, entry: Entry, *, is_durable: bool) -> None:
    """Write the topic metadata to a partition folder, unless it is already there."""
    data = json.dumps({"version": _VERSION, "topic": topic, **entry}, indent=1).encode()
    path = folder / METADATA_FILE
    if not path.exists() or path.read_bytes() != data:
        write_atomically(path, data, is_durable=is_durable)


def read_metadata(folder: Path, topic: str) -> Entry | None:
    """Return the topic metadata in a partition folder, or None if it is missing or belongs to another topic."""
    path = folder / METADATA_FILE
    try:
        document = json.loads(path.read_bytes())
        if document["version"] != _VERSION or document["topic"] != topic:
            return None
        return checked_entry(path, topic, {key: document[key] for key in document if key not in ("version", "topic")})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError, ConfigError) as error:
        _LOGGER.warning("%s: cannot be read and is left alone: %s", path, error)
        return None


def remove_partition(folder: Path) -> None:
    """Delete a partition folder.

    The metadata is deleted last, so that an interrupted deletion is recognized.
    """
    for path in folder.iterdir():
        if path.name != METADATA_FILE:
            path.unlink()
    shutil.rmtree(folder)


def check_owner(folder: Path, topic: str, topic_id: str) -> None:
    """Check that a folder belongs to the current topic with its name.

    Raises:
        DamagedLogError: the folder belongs to an earlier topic with the same name.
    """
    metadata = read_metadata(folder, topic)
    if metadata is not None and metadata.get("id") != topic_id:
        raise damaged(folder, f"the records are of a topic with id {metadata.get('id')}, not {topic_id}", folder)


@define
class Adoption:
    """The adoption of partition folders whose topics are not in the topics file.

    ``entries`` has the topics in the file, and ``deleting`` the IDs of topics that are being deleted.
    """

    logs: Path
    entries: dict[str, Entry]
    deleting: Collection[str]

    def run(self) -> bool:
        """Adopt or delete each unknown partition folder; return whether a topic was adopted.

        Raises:
            ConfigError: a folder has records but no topic, and cannot be adopted.
        """
        unknown = self._unknown()
        refused: list[str] = []
        is_changed = False
        for topic, numbers in unknown.items():
            folders = {number: read_metadata(self._folder(topic, number), topic) for number in numbers}
            for number, entry in list(folders.items()):
                if entry is not None and entry.get("id") in self.deleting:
                    remove_partition(self._folder(topic, number))
                    del folders[number]
            if not folders:
                continue
            entry = self._adopted(topic, folders)
            if entry is not None:
                self.entries[topic] = entry
                is_changed = True
                _LOGGER.warning(
                    "topic %r: the topics' file does not know its folders in %s; adopted with %d partitions",
                    topic,
                    self.logs,
                    entry["partitions"],
                )
            elif any(_has_records(self._folder(topic, number)) for number in folders):
                refused += [f"{topic}-{number}" for number in sorted(folders)]
            else:
                # The broker was killed while creating the topic, and no client got a response.
                for number in folders:
                    remove_partition(self._folder(topic, number))
        if refused:
            raise ConfigError(
                f"{self.logs} holds records that belong to no topic of the topics' file: {', '.join(refused)}; not "
                f"every partition is there with its {METADATA_FILE}, so they cannot be adopted. Restore the topics' "
                "file or the missing folders, or move these away; nothing was deleted"
            )
        return is_changed

    def _unknown(self) -> Mapping[str, list[int]]:
        unknown: dict[str, list[int]] = {}
        for folder in sorted(self.logs.iterdir()) if self.logs.is_dir() else ():
            match = _FOLDER_NAME.fullmatch(folder.name)
            if match is None or not folder.is_dir() or str(int(match[2])) != match[2]:
                _LOGGER.warning("%s: not the folder of a partition; it is left alone", folder)
                continue
            topic = match[1]
            number = int(match[2])
            entry = self.entries.get(topic)
            if entry is None or entry["storage"] != "file" or number >= entry["partitions"]:
                unknown.setdefault(topic, []).append(number)
        return unknown

    def _folder(self, topic: str, number: int) -> Path:
        return self.logs / str(TopicPartition(topic, number))

    def _adopted(self, topic: str, folders: Mapping[int, Entry | None]) -> Entry | None:
        """Return the metadata of a topic that is adopted, given the metadata in its partition folders.

        The result is None if partitions are missing or their metadata differs.
        """
        entry = self.entries.get(topic)
        entries = [metadata for metadata in folders.values() if metadata is not None]
        present = set(folders)
        if entry is not None:
            entries = [*entries, entry]
            present |= set(range(entry["partitions"]))
        if (
            len(entries) < len(folders)
            or len(_different(entries, "id")) != 1
            or len(_different(entries, "storage")) != 1
        ):
            return None
        newest = max(entries, key=lambda one: int(one["partitions"]))
        return dict(newest) if present == set(range(newest["partitions"])) else None


def _different(entries: Iterable[Entry], key: str) -> set[object]:
    return {entry.get(key) for entry in entries}


def _has_records(folder: Path) -> bool:
    return any(path.stat().st_size for path in folder.glob("*.log*"))
