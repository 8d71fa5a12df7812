"""Kafka Streams for Python.

A topology is a plain function of a ``StreamsBuilder``.  The same function runs live on the
embedded broker (``run``, ``Streams``), in tests (``streams.testing``) and bounded over files
(``streams run``).
"""

from streams.app import Streams, run
from streams.broker.embedded import EmbeddedBroker
from streams.clients.admin import Admin
from streams.clients.consumer import Consumer
from streams.clients.parallel import ParallelConsumer
from streams.clients.producer import Producer
from streams.core.clock import Clock, SystemClock, VirtualClock
from streams.core.config import StreamsConfig
from streams.core.errors import (
    BrokerError,
    ClientClosedError,
    ConfigError,
    InputError,
    InvalidTimestampError,
    MemberFencedError,
    OffsetOutOfRangeError,
    ProcessingError,
    ProducerFencedError,
    RebalanceInProgressError,
    RecordTooLargeError,
    SerializationError,
    StateLockedError,
    StoreClosedError,
    StoreError,
    StreamsError,
    TopologyError,
    TransactionError,
    UnknownTopicError,
)
from streams.core.records import (
    Headers,
    Record,
    RecordContext,
    RecordMetadata,
    TaskId,
    TopicPartition,
    Window,
    Windowed,
)
from streams.core.serdes import Serde, session_windowed, time_windowed
from streams.core.topic import Sink, Topic
from streams.core.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
from streams.dsl import (
    Branched,
    CogroupedKStream,
    EmitStrategy,
    GlobalKTable,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    SessionWindowedCogroupedKStream,
    SessionWindowedKStream,
    StreamsBuilder,
    Suppressed,
    TimeWindowedCogroupedKStream,
    TimeWindowedKStream,
    ValueTransformer,
    build_topology,
)
from streams.runtime.instance import ExceptionResponse, State
from streams.state import (
    KeyValueStore,
    SessionStore,
    TimestampedKeyValueStore,
    ValueAndTimestamp,
    VersionedRecord,
    VersionedStore,
    WindowStore,
)
from streams.topology.graph import Topology
from streams.topology.operator import PunctuationType
from streams.topology.processors import (
    Processor,
    ProcessorContext,
    key_value_store,
    punctuate,
    session_store,
    timestamped_key_value_store,
    versioned_store,
    window_store,
)
from streams.topology.subtopologies import PartitionGrouper, SamePartitionGrouper

__all__ = [
    "Admin",
    "Branched",
    "BrokerError",
    "ClientClosedError",
    "Clock",
    "CogroupedKStream",
    "ConfigError",
    "Consumer",
    "EmbeddedBroker",
    "EmitStrategy",
    "ExceptionResponse",
    "GlobalKTable",
    "Headers",
    "InputError",
    "InvalidTimestampError",
    "JoinWindows",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KeyValueStore",
    "MemberFencedError",
    "OffsetOutOfRangeError",
    "ParallelConsumer",
    "PartitionGrouper",
    "ProcessingError",
    "Processor",
    "ProcessorContext",
    "Producer",
    "ProducerFencedError",
    "PunctuationType",
    "RebalanceInProgressError",
    "Record",
    "RecordContext",
    "RecordMetadata",
    "RecordTooLargeError",
    "SamePartitionGrouper",
    "Serde",
    "SerializationError",
    "SessionStore",
    "SessionWindowedCogroupedKStream",
    "SessionWindowedKStream",
    "SessionWindows",
    "Sink",
    "SlidingWindows",
    "State",
    "StateLockedError",
    "StoreClosedError",
    "StoreError",
    "Streams",
    "StreamsBuilder",
    "StreamsConfig",
    "StreamsError",
    "Suppressed",
    "SystemClock",
    "TaskId",
    "TimeWindowedCogroupedKStream",
    "TimeWindowedKStream",
    "TimeWindows",
    "TimestampedKeyValueStore",
    "Topic",
    "TopicPartition",
    "Topology",
    "TopologyError",
    "TransactionError",
    "UnknownTopicError",
    "UnlimitedWindows",
    "ValueAndTimestamp",
    "ValueTransformer",
    "VersionedRecord",
    "VersionedStore",
    "VirtualClock",
    "Window",
    "WindowStore",
    "Windowed",
    "build_topology",
    "key_value_store",
    "punctuate",
    "run",
    "session_store",
    "session_windowed",
    "time_windowed",
    "timestamped_key_value_store",
    "versioned_store",
    "window_store",
]
