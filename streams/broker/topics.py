"""The topics of a broker: creation, growth, deletion, and loading after a restart.

The topics own the logs of all partitions.  With a data directory, topic names, partition counts, settings and
storages are stored in one file that is replaced atomically.
"""

import logging
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias, cast

from attrs import define, evolve, field, frozen

from streams.broker.logs.array import array_storage
from streams.broker.logs.config import PARTITIONER, STORAGE, TopicConfig, parse_config
from streams.broker.logs.damaged import DamagedStorage
from streams.broker.logs.file import file_storage
from streams.broker.logs.files import write_atomically
from streams.broker.logs.folders import Adoption, Entry, check_owner, stored_topics, topics_document, write_metadata
from streams.broker.logs.guarded import guarded
from streams.broker.logs.linked import linked_storage
from streams.broker.logs.log import PartitionLog
from streams.broker.logs.serialization import Serialization, serialized
from streams.broker.logs.storage import ConfigurableStorage, LogStorage, StorageContext, StorageFactory
from streams.core.blocks.partitioning import Partitioner
from streams.core.blocks.records import TopicPartition
from streams.core.errors import BrokerError, ConfigError, DamagedLogError, StreamsError, UnknownTopicError
from streams.core.settings.config import FsyncPolicy
from streams.protocol.error_codes import ErrorCode

_LOGGER = logging.getLogger(__name__)

#: Where the records of a topic are stored: in memory, in files, or in a user-defined storage.
StorageChoice: TypeAlias = Literal["array", "linked", "file"] | StorageFactory

#: The log of committed offsets and group metadata.
OFFSETS_TOPIC = "__consumer_offsets"
#: The log of transactional IDs and their transaction states.
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})

_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
#: Content of a data directory: the topics file, and the parent folder of the partition folders.
TOPICS_FILE = "topics.json"
LOGS_FOLDER = "logs"


@frozen
class Storages:
    """The storage choices, codecs and partitioners of topics.

    ``default`` is used for topics that are not in ``by_topic``.  File storage requires ``data_dir``, and
    uses the ``fsync`` policy.  ``serializations`` and ``partitioners`` are keyed by topic.
    """

    default: StorageChoice = "array"
    by_topic: Mapping[str, StorageChoice] = field(factory=dict)
    data_dir: Path | None = None
    fsync: FsyncPolicy = "never"
    serializations: Mapping[str, Serialization] = field(factory=dict)
    partitioners: Mapping[str, Partitioner] = field(factory=dict)
    _files: StorageFactory | None = field(init=False)

    @_files.default
    def _make_files(self) -> StorageFactory | None:
        return None if self.data_dir is None else file_storage(self.data_dir / LOGS_FOLDER, self.fsync)

    def choice(self, topic: str) -> StorageChoice:
        """Return the configured storage of a topic."""
        return self.by_topic.get(topic, self.default)

    def factory(self, topic: str, choice: StorageChoice) -> StorageFactory:
        """Return the storage factory of a topic.

        Raises:
            ConfigError: the storage is unknown, or needs a data directory and there is none.
        """
        if callable(choice):
            return choice
        if choice == "array":
            return array_storage
        if choice == "linked":
            return linked_storage
        if choice != "file":
            raise ConfigError(
                f"storage {choice!r} of topic {topic!r}: choose 'array', 'linked', 'file' or a storage factory"
            )
        if self._files is None:
            raise ConfigError(f"topic {topic!r} is to be stored in files: give the broker a data_dir")
        return self._files


@define(eq=False)
class TopicLogs:
    """A topic and the logs of its partitions.

    If ``serialization`` is None, in-memory storages keep blocks of records, and files contain record batches.
    ``partitioner`` is the function of a topic with a user-defined partitioner.
    """

    name: str
    config: TopicConfig
    storage: StorageChoice
    serialization: Serialization | None = None
    partitioner: Partitioner | None = None
    logs: list[PartitionLog] = field(factory=list)
    #: Distinguishes the topic from earlier topics with the same name (KIP-516).
    topic_id: bytes = field(factory=lambda: uuid.uuid4().bytes)

    def by_id(self, number: int) -> TopicPartition:
        """Return a partition with the topic ID in place of the name, as clients name it in fetches (KIP-516)."""
        return TopicPartition(cast("str", self.topic_id), number)

    @property
    def is_internal(self) -> bool:
        """Whether the broker itself uses the topic, such as ``__consumer_offsets``."""
        return self.name in INTERNAL_TOPICS

    @property
    def storage_name(self) -> str:
        """The name of the topic storage, or "custom" for a user-defined storage factory."""
        return "custom" if callable(self.storage) else self.storage

    def described(self) -> dict[str, str]:
        """Return the effective settings of the topic."""
        return self.config.described() | {STORAGE: self.storage_name}

    def shown(self) -> dict[str, str]:
        """Return the effective settings of the topic, and the Kafka settings that have no effect in this broker."""
        return self.config.shown() | {STORAGE: self.storage_name}


@define(eq=False)
class Topics:
    """All topics of a broker, and their logs by partition; ``defaults`` are settings of topics without their own."""

    storages: Storages
    defaults: Mapping[str, str] = field(factory=dict)
    by_name: dict[str, TopicLogs] = field(factory=dict, init=False)
    logs: dict[TopicPartition, PartitionLog] = field(factory=dict, init=False)
    #: The same logs by partitions with topic IDs; see ``TopicLogs.by_id``.
    logs_by_id: dict[TopicPartition, PartitionLog] = field(factory=dict, init=False)
    version: int = field(default=0, init=False)
    _is_deferred: bool = field(default=False, init=False)
    #: IDs of topics whose deletion has begun: their folders may be deleted.
    _deleting: set[str] = field(factory=set, init=False)

    def log(self, partition: TopicPartition) -> PartitionLog:
        """Return the log of a partition.

        Raises:
            UnknownTopicError: the partition does not exist.
            DamagedLogError: records of the partition are damaged.
        """
        log = self.logs.get(partition)
        if log is None:
            topic = self.by_name.get(partition.topic)
            what = (
                "the topic does not exist; create it first"
                if topic is None
                else f"the topic has partitions 0 to {len(topic.logs) - 1}"
            )
            raise UnknownTopicError(f"partition {partition}: {what}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        log.check_sound()
        return log

    def topic(self, name: str) -> TopicLogs:
        """Return the topic with this name.

        Raises:
            UnknownTopicError: the topic does not exist.
        """
        topic = self.by_name.get(name)
        if topic is None:
            raise UnknownTopicError(f"topic {name!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    def create(
        self,
        name: str,
        partitions: int,
        config: Mapping[str, str] | None = None,
        storage: StorageChoice | None = None,
        serialization: Serialization | None = None,
        partitioner: Partitioner | None = None,
    ) -> TopicLogs:
        """Create a topic and the storages of its partitions.

        User-defined objects default to the ones registered with the broker for the topic name.  If an error is
        raised, the topic is not created.

        Raises:
            BrokerError: the name is taken or illegal, the partition count is below 1, a setting is invalid, or
                a user-defined storage failed.
            ConfigError: the storage is not available, or the partitioner was not passed.
            OSError: the storage failed.
        """
        topic = self._new(name, partitions, config, storage, serialization, partitioner)
        self._grow(topic, partitions)
        self.by_name[name] = topic
        try:
            self._describe_folders(topic)
            self._save()
        except OSError:
            del self.by_name[name]
            self._shrink(topic, 0)
            raise
        return topic

    def by_id(self) -> dict[bytes, TopicLogs]:
        """Return the topics by topic ID."""
        return {topic.topic_id: topic for topic in self}

    def logs_of(self, name: str) -> Sequence[PartitionLog]:
        """Return the logs of a topic, or an empty sequence if the topic does not exist."""
        topic = self.by_name.get(name)
        return () if topic is None else topic.logs

    @contextmanager
    def creating(self) -> Iterator[None]:
        """Write the topics file once for all topics created within the context.

        Raises:
            OSError: the file could not be written; none of the topics is created.
        """
        before = len(self.by_name)
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False
        created = list(self.by_name)[before:]
        if created:
            try:
                self._save()
            except OSError:
                for name in created:
                    self._shrink(self.by_name.pop(name), 0)
                raise

    def check_new(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> TopicLogs:
        """Validate a new topic, and return it without partitions.

        Raises:
            BrokerError, ConfigError: the topic cannot be created; see ``create``.
        """
        return self._new(name, partitions, config, None, None, None)

    def _new(
        self,
        name: str,
        partitions: int,
        config: Mapping[str, str] | None,
        storage: StorageChoice | None,
        serialization: Serialization | None,
        partitioner: Partitioner | None,
    ) -> TopicLogs:
        """Return a new topic without partitions, which is not registered yet."""
        check_name(name)
        if name in self.by_name:
            # Scripts that use Kafka's tools match this exact message.
            raise BrokerError(f"Topic {name!r} already exists.", code=ErrorCode.TOPIC_ALREADY_EXISTS)
        if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
            raise BrokerError(
                f"topic {name!r} with {partitions!r} partitions: at least 1 is needed",
                code=ErrorCode.INVALID_PARTITIONS,
            )
        storages = self.storages
        texts = dict(config or {})
        partitioner = partitioner or storages.partitioners.get(name)
        if partitioner is not None:
            texts.setdefault(PARTITIONER, "custom")
        parsed = parse_config(texts, self._defaults_of(name))
        if storage is None:
            storage = _named(parsed.storage) or storages.choice(name)
        if parsed.storage == "custom" and not callable(storage):
            raise ConfigError(f"topic {name!r} is to have a storage of its own: give its factory, as storage=")
        topic = TopicLogs(name, parsed, storage, serialization or storages.serializations.get(name))
        topic.partitioner = _partitioner(topic, partitioner)
        return topic

    def _defaults_of(self, name: str) -> Mapping[str, str]:
        """Return the broker's settings for topics without their own; the log of groups must not lose what it needs."""
        return {} if name in INTERNAL_TOPICS else self.defaults

    def add_partitions(self, name: str, partitions: int) -> None:
        """Raise the partition count of a topic to ``partitions``.

        Raises:
            UnknownTopicError: the topic does not exist.
            BrokerError: the topic already has at least that many partitions.
        """
        topic = self.check_growth(name, partitions)
        count = len(topic.logs)
        self._grow(topic, partitions)
        try:
            self._describe_folders(topic)
            self._save()
        except OSError:
            self._shrink(topic, count)
            raise

    def check_growth(self, name: str, partitions: int) -> TopicLogs:
        """Check a new partition count, and return the topic.

        Raises:
            UnknownTopicError, BrokerError: the partition count cannot be raised; see ``add_partitions``.
        """
        topic = self.topic(name)
        count = len(topic.logs)
        if partitions == count:
            raise BrokerError(f"Topic already has {count} partition(s).", code=ErrorCode.INVALID_PARTITIONS)
        if partitions < count:
            raise BrokerError(
                f"The topic {name} currently has {count} partition(s); {partitions} would not be an increase.",
                code=ErrorCode.INVALID_PARTITIONS,
            )
        return topic

    def alter(self, name: str, config: Mapping[str, str]) -> None:
        """Replace all settings of a topic; absent settings get their defaults.

        Raises:
            UnknownTopicError: the topic does not exist.
            BrokerError: a setting is invalid or cannot be altered.
        """
        topic = self.topic(name)
        before = topic.config
        parsed = parse_config(config, self._defaults_of(name))
        for setting in (PARTITIONER, STORAGE):
            if parsed.described()[setting] != before.described()[setting]:
                raise BrokerError(
                    f"topic {name!r}: {setting} cannot be altered; create a topic that has it",
                    code=ErrorCode.INVALID_CONFIG,
                )
        topic.config = parsed
        try:
            self._describe_folders(topic)
            self._save()
        except OSError:
            topic.config = before
            raise
        for log in topic.logs:
            log.config = parsed
            if isinstance(log.storage, ConfigurableStorage):
                log.storage.configure(parsed.texts)

    def delete(self, name: str) -> list[TopicPartition]:
        """Delete a topic with its records, and return its partitions, by its name and by its ID.

        Raises:
            UnknownTopicError: the topic does not exist.
        """
        topic = self.topic(name)
        partitions = [log.partition for log in topic.logs]
        for log in topic.logs:
            log.check_sound()
        topic_id = topic.topic_id.hex()
        del self.by_name[name]
        self._deleting.add(topic_id)
        try:
            # Remove the name first: files left by a crash are deleted on the next open.
            self._save()
        except OSError:
            self.by_name[name] = topic
            self._deleting.discard(topic_id)
            raise
        self._shrink(topic, 0)
        self._deleting.discard(topic_id)
        return [*partitions, *map(topic.by_id, range(len(partitions)))]

    def flush(self) -> None:
        """Flush the logs of all partitions."""
        for log in self.logs.values():
            log.storage.flush()

    def close(self) -> None:
        """Close the logs of all partitions."""
        _each(self.logs.values(), lambda log: log.storage.close())

    def reopened(self) -> "Topics":
        """Return these topics as if after a restart: with the same storages, but no other in-memory state."""
        topics = Topics(self.storages, self.defaults)
        for topic in self:
            again = evolve(topic, logs=[])
            for log in topic.logs:
                topics._add_log(again, PartitionLog(log.partition, log.storage, topic.config))
            topics.by_name[topic.name] = again
        return topics

    # --- the topics file --------------------------------------------------------------------

    def load(self) -> None:
        """Open the topics in the data directory, if there is one.

        Raises:
            ConfigError: the topics file cannot be read, or a user-defined storage was not passed.
        """
        path = self._path()
        data_dir = self.storages.data_dir
        if path is None or data_dir is None:
            return
        entries, deleting = stored_topics(path)
        if Adoption(data_dir / LOGS_FOLDER, entries, deleting).run():
            write_atomically(path, topics_document(entries, ()))
        for name, entry in entries.items():
            try:
                check_name(name)
                config = parse_config(entry["config"], self._defaults_of(name))
            except BrokerError as error:
                raise ConfigError(f"topics' file {path}: topic {name!r}: {error}; fix it there") from error
            topic = TopicLogs(name, config, self._stored_choice(name, entry["storage"]))
            topic.topic_id = bytes.fromhex(entry["id"])
            topic.partitioner = _partitioner(topic, self.storages.partitioners.get(name))
            topic.serialization = self._stored_serialization(name, entry.get("serialization"))
            for number in range(entry["partitions"]):
                partition = TopicPartition(name, number)
                self._add_log(topic, PartitionLog(partition, self._opened(topic, partition), topic.config))
            self.by_name[name] = topic
            self._describe_folders(topic)

    def _opened(self, topic: TopicLogs, partition: TopicPartition) -> LogStorage:
        """Return the opened storage of an existing partition, or a ``DamagedStorage`` if the partition is damaged."""
        folder = self._folder(topic, partition)
        try:
            if folder is not None:
                check_owner(folder, topic.name, topic.topic_id.hex())
            return self._storage(topic, partition, is_known=True)
        except DamagedLogError as error:
            _LOGGER.error("partition %s is offline: %s", partition, error)
            return DamagedStorage(error)

    def check_sound(self, *, tolerates: bool) -> None:
        """Check that no partition is offline; with ``tolerates``, only partitions of internal topics are checked.

        Raises:
            DamagedLogError: a partition is offline; a note on the exception lists the other offline partitions.
        """
        offline = [log for log in self.logs.values() if log.damage is not None]
        fatal = [log for log in offline if not tolerates or log.partition.topic in INTERNAL_TOPICS]
        if fatal:
            others = [str(log.partition) for log in offline if log is not fatal[0]]
            if others and fatal[0].damage is not None:
                fatal[0].damage.add_note(f"damaged too: {', '.join(others)}")
            fatal[0].check_sound()

    def _folder(self, topic: TopicLogs, partition: TopicPartition) -> Path | None:
        data_dir = self.storages.data_dir
        return data_dir / LOGS_FOLDER / str(partition) if data_dir is not None and topic.storage == "file" else None

    def _describe_folders(self, topic: TopicLogs) -> None:
        """Write the topic metadata to the folder of each partition."""
        for log in topic.logs:
            folder = self._folder(topic, log.partition)
            if folder is not None and not isinstance(log.storage, DamagedStorage):
                write_metadata(folder, topic.name, _entry(topic), is_durable=self.storages.fsync != "never")

    def _stored_choice(self, name: str, stored: str) -> StorageChoice:
        named = _named(stored)
        if named is not None:
            return named
        choice = self.storages.choice(name)
        if not callable(choice):
            raise ConfigError(
                f"topic {name!r} was created with a storage of its own: give it again, as storages={{{name!r}: ...}}"
            )
        return choice

    def _stored_serialization(self, name: str, stored: str | None) -> Serialization | None:
        if stored is None:
            # The records were written without this codec, so it cannot read them.
            return None
        serialization = self.storages.serializations.get(name)
        if serialization is None:
            raise ConfigError(
                f"topic {name!r} was created with a serialization of its own: "
                f"give it again, as serializations={{{name!r}: ...}}"
            )
        return serialization

    def _save(self) -> None:
        path = self._path()
        if path is None or self._is_deferred:
            return
        entries = {topic.name: _entry(topic) for topic in self.by_name.values()}
        write_atomically(path, topics_document(entries, self._deleting))

    def _path(self) -> Path | None:
        data_dir = self.storages.data_dir
        return None if data_dir is None else data_dir / TOPICS_FILE

    # --- internal -----------------------------------------------------------------------------

    def _grow(self, topic: TopicLogs, partitions: int) -> None:
        count = len(topic.logs)
        try:
            for number in range(count, partitions):
                partition = TopicPartition(topic.name, number)
                storage = self._storage(topic, partition)
                if storage.end_offset > 0:
                    end = storage.end_offset
                    storage.close()
                    raise BrokerError(
                        f"partition {partition} cannot be made: its storage has records up to offset {end} already, of "
                        "no topic that is known; move them away first",
                        code=ErrorCode.STORAGE_ERROR,
                    )
                self._add_log(topic, PartitionLog(partition, storage, topic.config))
        except Exception:
            self._shrink(topic, count)
            raise

    def _shrink(self, topic: TopicLogs, partitions: int) -> None:
        gone = topic.logs[partitions:]
        del topic.logs[partitions:]
        for log in gone:
            self.logs.pop(log.partition, None)
            self.logs_by_id.pop(topic.by_id(log.partition.partition), None)
        self.version += 1
        _each(gone, lambda log: log.storage.delete())

    def _add_log(self, topic: TopicLogs, log: PartitionLog) -> None:
        topic.logs.append(log)
        self.logs[log.partition] = self.logs_by_id[topic.by_id(log.partition.partition)] = log
        self.version += 1

    def _storage(self, topic: TopicLogs, partition: TopicPartition, *, is_known: bool = False) -> LogStorage:
        factory = self.storages.factory(topic.name, topic.storage)
        context = StorageContext(partition, topic.config.texts, is_known)
        is_own = callable(topic.storage)
        try:
            storage = factory(context)
        except StreamsError:
            raise
        except Exception as error:
            if not is_own:
                raise
            raise BrokerError(
                f"topic {topic.name!r}: its storage factory failed for {partition}: {error!r}",
                code=ErrorCode.STORAGE_ERROR,
            ) from error
        if is_own:
            storage = guarded(storage, partition)
        return storage if topic.serialization is None else serialized(storage, topic.serialization)

    def __iter__(self) -> Iterator[TopicLogs]:
        return iter(self.by_name.values())


def _entry(topic: TopicLogs) -> Entry:
    """Return the metadata of a topic, as stored in the topics file."""
    return {
        "partitions": len(topic.logs),
        "config": dict(topic.config.own),
        "storage": topic.storage_name,
        "id": topic.topic_id.hex(),
        **({} if topic.serialization is None else {"serialization": "custom"}),
    }


def _named(storage: str) -> StorageChoice | None:
    return storage if storage in ("array", "linked", "file") else None  # type: ignore[return-value]


def _partitioner(topic: TopicLogs, function: Partitioner | None) -> Partitioner | None:
    """Return the user-defined partitioner of a topic, or None if the topic uses a built-in strategy."""
    if topic.config.partitioner != "custom":
        if function is not None:
            raise ConfigError(
                f"topic {topic.name!r} has the partitioning strategy {topic.config.partitioner!r}, "
                "yet a partitioner is given for it: leave out one of them"
            )
        return None
    if function is None:
        raise ConfigError(
            f"topic {topic.name!r} has a partitioning strategy of its own: "
            f"give its function, as partitioner= or partitioners={{{topic.name!r}: ...}}"
        )
    return function


def _each(logs: Iterable[PartitionLog], act: Callable[[PartitionLog], None]) -> None:
    """Apply a function to every log; if it fails for any log, raise the first error at the end."""
    failure: Exception | None = None
    for log in logs:
        try:
            act(log)
        except (BrokerError, OSError) as error:
            failure = failure or error
    if failure is not None:
        raise failure


def check_name(name: str) -> None:
    """Check a topic name by Kafka's rules.

    Raises:
        BrokerError: the name is illegal (``INVALID_TOPIC``).
    """
    if name in (".", "..") or not _LEGAL_NAME.fullmatch(name):
        raise BrokerError(
            f"topic name {name!r}: use 1 to 249 letters, digits, '.', '_' or '-', but neither '.' nor '..'",
            code=ErrorCode.INVALID_TOPIC,
        )
