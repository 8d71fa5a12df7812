"""The embedded broker (``broker=``), which runs in this process with nothing to install.

The broker handles requests without serialization, for clients in any number of threads.

Locking:

- One lock guards the state machine: topics, logs, groups, timers and waiting fetches.  Every request
  and every helper method holds the lock from beginning to end.
- Each connection has a condition that guards its inbox.  A thread that holds the broker lock may
  acquire the condition (to deliver a response), never the other way round, so the two cannot deadlock.
- The broker has no thread of its own, unless it is served over TCP.  Timers are driven by
  polls: one of the waiting connections is the *keeper*.  It sleeps until the next deadline at most,
  is woken when that deadline becomes earlier, and hands the role over when its poll returns.  A
  server takes over the role while it listens.
"""

import os
from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Unpack

from attrs import evolve

from streams.broker.assignable import AssignableTopics
from streams.broker.broker_settings import BrokerSettings, EmbeddedOptions
from streams.broker.directory import cluster_id, directory_of, locked, login_secret
from streams.broker.driver import Driver, LocalConnection
from streams.broker.fetch_sessions import FetchSessions
from streams.broker.handlers import HANDLERS
from streams.broker.logs.config import PARTITIONER, RECORD_TTL, BrokerConfig
from streams.broker.logs.serialization import Serialization
from streams.broker.service import Broker
from streams.broker.tcp import BrokerServer, Limits, ServerTls, Users, parse_address
from streams.broker.tcp.users import SECRET_BYTES
from streams.broker.topics import StorageChoice, Storages, Topics
from streams.clients import Strategy
from streams.core.blocks.partitioning import Partitioner
from streams.core.blocks.records import Block, TopicPartition
from streams.core.clock import Clock, SystemClock
from streams.core.closeable import Closeable
from streams.core.concurrency.forks import stays_in_process
from streams.core.errors import BrokerError, ConfigError, DamagedLogError
from streams.core.settings.setting import changed
from streams.core.topic import Topic, TopicLike, topic_name
from streams.core.user_code import refuse_unawaited
from streams.group import Coordinator, CoordinatorConfig
from streams.protocol.messages import TopicMetadata

if TYPE_CHECKING:
    from streams.broker.registry import RegistryServer


class EmbeddedBroker(Closeable):
    """A broker that runs in this process; it is a context manager and a ``Cluster``.

    Without ``data_dir``, all data is kept in memory and lost on close.  With ``data_dir``, topics,
    records, committed offsets and groups are available again when a broker is opened on the same
    directory.  Only one broker at a time can open a directory.

    - ``storage``: where records are stored: "array" (memory; the default without ``data_dir``),
      "linked" (memory), "file" (the default with ``data_dir``), or a user-defined factory.
      ``storages`` overrides ``storage`` for individual topics.
    - ``serializations``, ``partitioners``: user-defined objects by topic.  Objects with which the
      topics in ``data_dir`` were created must be passed again.
    - ``fsync``: when files are synced to disk: "never" (records survive a killed process, but
      perhaps not a power failure), "commit" (with every offset commit) or "always".
    - ``auto_create_topics``: a metadata request for an unknown topic creates the topic with
      ``default_partitions`` partitions.  True by default, as in Kafka; pass False to detect
      misspelled names.
    - ``maintenance_interval_ms``: how often retention and compaction run while clients
      poll; with None, they only run in ``maintain``.
    - ``serves_damaged``: partitions with damaged records are offline (``STORAGE_ERROR``) and the others are
      served, as by ``streams broker``; if False, a broker with damaged records does not open.
    - ``is_private``: whether only this process and its child processes connect.  When groups are loaded from
      ``data_dir``, members that ran in the earlier broker process are removed immediately.  Members in other
      processes may return within their session timeout; with ``is_private``, they are removed as well.
    - ``rack``: the rack or zone that Metadata and DescribeCluster tell clients (``broker.rack``).
    - ``settings``: settings of the broker, of groups and of topics without their own, as texts by the names that
      Kafka's brokers have for them, such as ``{"log.retention.ms": "3600000"}``; they go before other arguments.
    - ``rng``: draws the IDs of members and of fetch sessions; seeded by the system by default.
    - ``clock``: with a ``VirtualClock``, a poll never waits: it returns the responses that are available at
      that time, and must be repeated after the clock has advanced.

    Raises:
        StateLockedError: another broker uses the directory.
        ConfigError: the directory or a storage cannot be used, or a setting is unknown or invalid.
        DamagedLogError: records of a partition are damaged or missing.

    >>> with EmbeddedBroker() as broker:
    ...     broker.create_topic("words", partitions=2)
    ...     broker.append(TopicPartition("words", 0), Block([None], [b"hello"], [0]))
    ...     broker.end_offset(TopicPartition("words", 0))
    0
    1
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        clock: Clock | None = None,
        storage: StorageChoice | None = None,
        storages: Mapping[str, StorageChoice] | None = None,
        serializations: Mapping[str, Serialization] | None = None,
        partitioners: Mapping[str, Partitioner] | None = None,
        group_config: CoordinatorConfig | None = None,
        rng: Random | None = None,
        **options: Unpack[EmbeddedOptions],
    ) -> None:
        directory = self._directory = directory_of(data_dir)
        texts = options.pop("settings", {})
        settings = BrokerSettings(changed(BrokerConfig(), options), group_config or CoordinatorConfig())
        settings = settings.with_texts(texts)
        self._config = settings.broker
        for topic, function in (partitioners or {}).items():
            refuse_unawaited(function, f"partitioner of topic {topic!r}", error=ConfigError)
        kind = storage or ("array" if directory is None else "file")
        fsync = self._config.fsync
        topics = Topics(
            Storages(kind, dict(storages or {}), directory, fsync, serializations or {}, partitioners or {}),
            settings.topics,
        )
        rng = rng or Random()
        coordinator = Coordinator(settings.groups, rng, AssignableTopics(topics))
        self._machine = Broker(topics, coordinator, self._config, handlers=HANDLERS, fetch_sessions=FetchSessions(rng))
        self._lock_descriptor = None if directory is None else locked(directory)
        self._driver = self._loaded(SystemClock() if clock is None else clock)
        self._clock = self._driver.clock
        self._servers: list[BrokerServer | RegistryServer] = []
        self._machine.advertised = lambda: [
            server.advertised_listener
            for server in self._servers
            if isinstance(server, BrokerServer) and server.is_open
        ]
        stays_in_process(self)

    def _loaded(self, clock: Clock) -> Driver:
        """Load the data directory, and remove group members that ran in an earlier broker process.

        With ``is_private``, all group members are removed.
        """
        machine = self._machine
        try:
            driver = Driver(machine, clock, cluster_id(self._directory))
            machine.load(driver.now_ms())
            # Members that ran in an earlier broker process have no host.
            machine.coordinator.remove_members(
                lambda member: self._config.is_private or not member.client_host, driver.now_ms()
            )
        except BaseException:
            machine.close()
            self._unlock()
            raise
        return driver

    def __repr__(self) -> str:
        return f"<EmbeddedBroker in {'memory' if self._directory is None else self._directory}>"

    def connect(self, client_id: str) -> LocalConnection:
        """Open an in-process connection for a client with this client ID.

        Raises:
            BrokerError: the broker is closed.
        """
        return self._driver.connect(client_id)

    def serve(
        self,
        listen: str = "127.0.0.1:9092",
        *,
        advertise: str | None = None,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        tls: ServerTls | None = None,
        users: Users | Mapping[str, str] | str | os.PathLike[str] | None = None,
        limits: Limits | None = None,
    ) -> BrokerServer:
        """Listen for clients in other processes, which use the Kafka protocol; the caller closes the returned server.

        Clients in this process are not affected.  May be called several times, with different addresses.

        - ``listen``: HOST:PORT; port 0 selects a free port.  On an address other than loopback, any client can
          read and write all topics, unless ``users`` is given.
        - ``advertise``: the HOST:PORT that clients connect to (``advertised.listeners``); the listening address
          by default.
        - ``tls_cert``, ``tls_key``: PEM files that enable TLS; ``tls`` instead, for an encrypted key or certificates
          of clients.
        - ``users``: passwords by user name, or a users file (see ``Users``).  Clients must authenticate with
          SASL (PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; OAUTHBEARER with ``Users(check_token=...)``).
        - ``limits``: limits on connections and requests.

        Raises:
            ConfigError: the address cannot be bound, a file cannot be used, or the clock is virtual.
            BrokerError: the broker is closed.
        """
        if self._driver.never_waits:
            raise ConfigError("a broker with a virtual clock cannot be served: clients over TCP use real time")
        if tls_key is not None and tls_cert is None:
            raise ConfigError("a TLS key without its certificate: give tls_cert too")
        if tls_cert is not None:
            if tls is not None:
                raise ConfigError("both tls= and tls_cert= are given: give one of them")
            tls = ServerTls(tls_cert, tls_key)
        if users is not None and not isinstance(users, Users):
            users = Users(users) if isinstance(users, Mapping) else Users.read(users)
        self._check_open()
        if users is not None:
            users = evolve(users, secret=login_secret(self._directory, SECRET_BYTES))
        server = BrokerServer(
            self._driver,
            parse_address(listen, needs_host=False),
            advertise=None if advertise is None else parse_address(advertise),
            tls=None if tls is None else tls.context(),
            users=users,
            limits=limits,
        )
        self._servers.append(server)
        return server

    def serve_registry(self, listen: str = "127.0.0.1:8081") -> "RegistryServer":
        """Serve a schema registry, with the HTTP API of Confluent's; the caller closes the returned server.

        The server is a context manager, and has the address for clients as ``url``.  Schemas are kept in the topic
        ``_schemas``, which is created if it does not exist.  ``listen`` is HOST:PORT; port 0 selects a free port.  On
        an address other than loopback, anybody can register and delete schemas.

        Raises:
            ConfigError: the address cannot be bound.
            BrokerError: the broker is closed.
        """
        # Only here: most brokers have no registry, and the HTTP server takes its time to import.
        from streams.broker.registry import CONFIG, PARTITION, RegistryServer, SchemaTopic

        if PARTITION.topic not in self.topics(include_internal=True):
            self.create_topic(PARTITION.topic, 1, CONFIG)
        server = RegistryServer(SchemaTopic(self, self._clock), listen)
        self._servers.append(server)
        return server

    def close(self) -> None:
        """Flush and close everything; pending requests fail with an error."""
        self._machine.begin_to_end()
        for server in self._servers:
            server.close()
        with self._driver.lock:
            if self._driver.is_closed:
                return
            self._driver.is_closed = True
            try:
                self._machine.close()
            finally:
                self._unlock()
                self._driver.fail_pending()

    # --- for drivers and tests: operations without a connection -----------------------------

    def create_topic(
        self,
        name: TopicLike,
        partitions: int | None = None,
        config: Mapping[str, str] | None = None,
        *,
        storage: StorageChoice | None = None,
        partitioner: Strategy | Partitioner | None = None,
        serialization: Serialization | None = None,
        ttl_ms: int | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Create a topic by name or from a ``Topic``; ``config`` uses Kafka's setting names.

        - ``partitions``: the partition count; defaults to that of the ``Topic``, or to the broker default.
        - ``storage``: "array", "linked", "file" or a user-defined factory; defaults to the broker setting.
        - ``partitioner``: used by producers without a partitioner of their own: "default" (murmur2 of the
          key, or sticky if there is no key), "round_robin", "explicit" (the sender chooses the partition),
          or a function of topic, key, value and partition count.
        - ``serialization``: a user-defined codec for stored blocks.
        - ``ttl_ms``: how long a record lives after its timestamp, unless the record has a time-to-live header
          (``ttl_header``).  With -1, only records with a header expire; with None, headers are ignored.
        - ``exist_ok``: a topic that exists is left as it is, if it has the partition count that is given, if any.

        These arguments override ``config``.  A user-defined factory, function or codec must be passed
        again (``storages=``, ``partitioners=``, ``serializations=``) when the broker is reopened.

        Raises:
            BrokerError: the name is taken or illegal, the partition count is below 1, a setting is invalid,
                or the storage failed.
            ConfigError: the storage is not available.
        """
        if isinstance(name, Topic) and partitions is None:
            partitions = name.partitions
        name = topic_name(name, "create_topic()", ConfigError)
        texts = dict(config or {})
        if partitioner is not None:
            texts[PARTITIONER] = "custom" if callable(partitioner) else partitioner
        if ttl_ms is not None:
            texts[RECORD_TTL] = str(ttl_ms)
        function = partitioner if callable(partitioner) else None
        refuse_unawaited(function, f"partitioner of topic {name!r}", error=ConfigError)
        with self._driver.lock:
            self._check_open()
            topics = self._machine.topics
            existing = len(topics.logs_of(name)) if exist_ok else 0
            if existing:
                if partitions not in (None, existing):
                    raise BrokerError(f"topic {name!r} exists with {existing} partitions, not {partitions}")
                return
            count_ = self._config.default_partitions if partitions is None else partitions
            topics.create(name, count_, texts, storage, serialization, function)

    def begin_at(self, partition: TopicPartition, offset: int) -> None:
        """Set the start offset of an empty partition, to continue a log from another broker.

        Raises:
            UnknownTopicError: the partition does not exist.
            BrokerError: the partition has records, or the storage failed.
        """
        with self._driver.lock:
            self._check_open()
            log = self._machine.topics.log(partition)
            if log.high_watermark > log.start_offset:
                raise BrokerError(f"partition {partition} has records already, so it cannot begin at {offset}")
            log.storage.truncate_before(offset)

    def add_partitions(self, name: str, partitions: int) -> None:
        """Raise the partition count of a topic to ``partitions``; consumer groups rebalance to use the new partitions.

        Raises:
            UnknownTopicError: the topic does not exist.
            BrokerError: the topic already has at least that many partitions.
        """
        with self._driver.lock:
            self._check_open()
            self._machine.catalogue.add_partitions(name, partitions)

    def alter_topic(self, name: str, changes: Mapping[str, str]) -> None:
        """Change some settings of a topic and keep the others.

        Raises:
            UnknownTopicError: the topic does not exist.
            BrokerError: a setting is invalid or cannot be altered.
        """
        with self._driver.lock:
            self._check_open()
            own = self._machine.topics.topic(name).config.own
            self._machine.alter_topic(name, {**own, **changes}, self._driver.now_ms())

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its committed offsets.

        Raises:
            UnknownTopicError: the topic does not exist.
        """
        with self._driver.lock:
            self._check_open()
            self._machine.delete_topic(name, self._driver.now_ms())

    def topics(self, *, include_internal: bool = False) -> dict[str, int]:
        """Return the partition count of each topic by topic name."""
        with self._driver.lock:
            self._check_open()
            topics = self._machine.topics
            return {topic.name: len(topic.logs) for topic in topics if include_internal or not topic.is_internal}

    def describe_topic(self, name: str) -> TopicMetadata:
        """Return the partitions and settings of a topic.

        Raises:
            UnknownTopicError: the topic does not exist.
        """
        with self._driver.lock:
            self._check_open()
            return self._machine.catalogue.described(self._machine.topics.topic(name))

    def append(self, partition: TopicPartition, block: Block) -> int:
        """Append a block of records without copying, and return the offset of its first record.

        The log then owns the columns of the block, which the caller must not modify.

        Raises:
            UnknownTopicError: the partition does not exist.
            RecordTooLargeError: a record exceeds ``max.message.bytes``; nothing was appended.
        """
        with self._driver.lock:
            self._check_open()
            base = self._machine.append(partition, (block,), self._driver.now_ms())
            self._driver.nudge_keeper()
            return base

    def read(
        self, partition: TopicPartition, offset: int, max_records: int = 10_000, *, committed_only: bool = False
    ) -> list[Block]:
        """Return up to ``max_records`` records from ``offset`` on, or [] at the end of the log.

        Expired records and transaction markers are left out.  With ``committed_only``, records of aborted
        transactions and all records from the first open transaction on are left out as well.

        Raises:
            UnknownTopicError: the partition does not exist.
            OffsetOutOfRangeError: the offset is below the start or above the end.
        """
        with self._driver.lock:
            self._check_open()
            log = self._machine.topics.log(partition)
            while blocks := log.fetch(offset, max_records, self._driver.wall_ms()):
                records = [block for block in blocks if block.producer is None or not block.producer.is_control]
                if committed_only:
                    records = list(log.committed(records))
                if records:
                    return records
                offset = blocks[-1].offsets[-1] + 1
            return []

    def damages(self) -> Mapping[TopicPartition, DamagedLogError]:
        """Return the damaged partitions, which are offline, each with the reason."""
        with self._driver.lock:
            self._check_open()
            logs = self._machine.topics.logs
            return {partition: log.damage for partition, log in logs.items() if log.damage is not None}

    def start_offset(self, partition: TopicPartition) -> int:
        """Return the lowest offset of a partition that can be read."""
        with self._driver.lock:
            self._check_open()
            return self._machine.topics.log(partition).start_offset

    def end_offset(self, partition: TopicPartition) -> int:
        """Return the offset that the next record of a partition will get."""
        with self._driver.lock:
            self._check_open()
            return self._machine.topics.log(partition).high_watermark

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        """Return the offset of the first record at or after a timestamp, or None if there is no such record.

        Raises:
            UnknownTopicError: the partition does not exist.
            BrokerError: the timestamp is negative.
        """
        with self._driver.lock:
            self._check_open()
            if timestamp_ms < 0:
                raise BrokerError(f"time {timestamp_ms} for offsets of {partition}: use epoch milliseconds")
            offset = self._machine.topics.log(partition).offset_for(timestamp_ms)[1]
            return None if offset < 0 else offset

    def delete_records(self, partition: TopicPartition, offset: int) -> int:
        """Delete the records below an offset (-1 = all records), and return the new start offset.

        Raises:
            UnknownTopicError: the partition does not exist.
            OffsetOutOfRangeError: the offset is above the end.
        """
        with self._driver.lock:
            self._check_open()
            return self._machine.topics.log(partition).delete_records(offset)

    def maintain(self, now_ms: int | None = None) -> None:
        """Apply retention and compaction as of a wall-clock time in epoch milliseconds; None means now."""
        with self._driver.lock:
            self._check_open()
            self._machine.maintain(self._driver.wall_ms() if now_ms is None else now_ms)

    def flush(self) -> None:
        """Sync the files of all topics to disk, unless ``fsync`` is "never"."""
        with self._driver.lock:
            self._check_open()
            self._machine.topics.flush()

    def _check_open(self) -> None:
        self._driver.check_open()

    def disown(self) -> None:
        """Refuse all further use in a forked process, which must not keep the lock of the data directory."""
        self._servers.clear()
        self._driver.disown()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock_descriptor is not None:
            os.close(self._lock_descriptor)
            self._lock_descriptor = None
