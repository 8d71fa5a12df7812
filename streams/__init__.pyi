"""The public names of the package, each with its module: ``__init__`` imports it when the name is first used."""

from .app import Streams as Streams, run as run
from .broker import EmbeddedBroker as EmbeddedBroker
from .clients import Admin as Admin, Consumer as Consumer, ParallelConsumer as ParallelConsumer, Producer as Producer
from .core.blocks.records import (
    ConsumerRecord as ConsumerRecord,
    Headers as Headers,
    Record as Record,
    RecordContext as RecordContext,
    RecordMetadata as RecordMetadata,
    TaskId as TaskId,
    TopicPartition as TopicPartition,
    Window as Window,
    Windowed as Windowed,
)
from .core.clock import Clock as Clock, SystemClock as SystemClock, VirtualClock as VirtualClock
from .core.dialect import Csv as Csv
from .core.drop_notes import DropNote as DropNote
from .core.errors import (
    BrokerError as BrokerError,
    ClientClosedError as ClientClosedError,
    ConfigError as ConfigError,
    DamagedLogError as DamagedLogError,
    ForeignFormatError as ForeignFormatError,
    HandlerError as HandlerError,
    InputError as InputError,
    InvalidStateStoreError as InvalidStateStoreError,
    InvalidTimestampError as InvalidTimestampError,
    LostRecordsError as LostRecordsError,
    MemberFencedError as MemberFencedError,
    OffsetOutOfRangeError as OffsetOutOfRangeError,
    ProcessingError as ProcessingError,
    ProducerFencedError as ProducerFencedError,
    RebalanceInProgressError as RebalanceInProgressError,
    RecordTooLargeError as RecordTooLargeError,
    SchemaError as SchemaError,
    SerializationError as SerializationError,
    StateLockedError as StateLockedError,
    StateStoreMigratedError as StateStoreMigratedError,
    StateStoreNotAvailableError as StateStoreNotAvailableError,
    StoreClosedError as StoreClosedError,
    StoreError as StoreError,
    StreamsError as StreamsError,
    StreamsNotStartedError as StreamsNotStartedError,
    StreamsRebalancingError as StreamsRebalancingError,
    TopologyError as TopologyError,
    TransactionError as TransactionError,
    UnawaitedError as UnawaitedError,
    UnknownStateError as UnknownStateError,
    UnknownStateStoreError as UnknownStateStoreError,
    UnknownTopicError as UnknownTopicError,
    UnreadableBatchError as UnreadableBatchError,
)
from .core.event_time.result_timing import ResultTiming as ResultTiming
from .core.event_time.windower import Windower as Windower
from .core.event_time.windows import (
    CalendarWindows as CalendarWindows,
    CountWindows as CountWindows,
    JoinWindows as JoinWindows,
    SessionWindows as SessionWindows,
    SlidingWindows as SlidingWindows,
    TimeWindows as TimeWindows,
    UnlimitedWindows as UnlimitedWindows,
)
from .core.handlers import (
    DeserializationHandler as DeserializationHandler,
    ErrorHandlerContext as ErrorHandlerContext,
    HandlerResponse as HandlerResponse,
    ProcessingHandler as ProcessingHandler,
    ProducerRecord as ProducerRecord,
    ProductionHandler as ProductionHandler,
)
from .core.http.oauth import OAuthToken as OAuthToken, OAuthUser as OAuthUser
from .core.migrations import Migration as Migration, migrate as migrate
from .core.serdes.serdes import (
    Serde as Serde,
    count_windowed as count_windowed,
    session_windowed as session_windowed,
    time_windowed as time_windowed,
)
from .core.settings.config import StreamsConfig as StreamsConfig
from .core.settings.setting_sources import load_settings as load_settings
from .core.topic import Sink as Sink, Topic as Topic
from .core.wrapping import (
    ProcessorWrapper as ProcessorWrapper,
    RecordFunction as RecordFunction,
    WrappedNode as WrappedNode,
)
from .dsl import (
    agg as agg,
    Branched as Branched,
    CogroupedKStream as CogroupedKStream,
    DeduplicatedKStream as DeduplicatedKStream,
    EmitStrategy as EmitStrategy,
    GlobalKTable as GlobalKTable,
    JoinedKStream as JoinedKStream,
    KGroupedStream as KGroupedStream,
    KGroupedTable as KGroupedTable,
    KStream as KStream,
    KTable as KTable,
    LookedUpKStream as LookedUpKStream,
    SessionWindowedCogroupedKStream as SessionWindowedCogroupedKStream,
    SessionWindowedKStream as SessionWindowedKStream,
    StreamsBuilder as StreamsBuilder,
    Suppressed as Suppressed,
    TimeWindowedCogroupedKStream as TimeWindowedCogroupedKStream,
    TimeWindowedKStream as TimeWindowedKStream,
    ValueTransformer as ValueTransformer,
    build_topology as build_topology,
)
from .runtime import (
    CountQuery as CountQuery,
    ExceptionResponse as ExceptionResponse,
    FailureReason as FailureReason,
    KeyQuery as KeyQuery,
    KeyQueryMetadata as KeyQueryMetadata,
    MultiVersionedKeyQuery as MultiVersionedKeyQuery,
    Position as Position,
    PrefixQuery as PrefixQuery,
    QueryResult as QueryResult,
    RangeQuery as RangeQuery,
    SessionKeyQuery as SessionKeyQuery,
    SessionRangeQuery as SessionRangeQuery,
    State as State,
    StateQueryResult as StateQueryResult,
    StoreChange as StoreChange,
    StoreView as StoreView,
    StreamsMetadata as StreamsMetadata,
    TimestampedKeyQuery as TimestampedKeyQuery,
    TimestampedRangeQuery as TimestampedRangeQuery,
    VersionedKeyQuery as VersionedKeyQuery,
    WindowKeyQuery as WindowKeyQuery,
    WindowRangeQuery as WindowRangeQuery,
)
from .state import (
    KeyValueStore as KeyValueStore,
    SessionStore as SessionStore,
    TimestampedKeyValueStore as TimestampedKeyValueStore,
    TimestampedKeyValueStoreWithHeaders as TimestampedKeyValueStoreWithHeaders,
    TimestampedWindowStoreWithHeaders as TimestampedWindowStoreWithHeaders,
    ValueAndHeaders as ValueAndHeaders,
    ValueAndTimestamp as ValueAndTimestamp,
    ValueTimestampHeaders as ValueTimestampHeaders,
    VersionedRecord as VersionedRecord,
    VersionedStore as VersionedStore,
    WindowStore as WindowStore,
)
from .topology import (
    PartitionGrouper as PartitionGrouper,
    Processor as Processor,
    ProcessorContext as ProcessorContext,
    PunctuationType as PunctuationType,
    SamePartitionGrouper as SamePartitionGrouper,
    Topology as Topology,
    key_value_store as key_value_store,
    lru_store as lru_store,
    punctuate as punctuate,
    session_store as session_store,
    session_store_with_headers as session_store_with_headers,
    timestamped_key_value_store as timestamped_key_value_store,
    timestamped_key_value_store_with_headers as timestamped_key_value_store_with_headers,
    timestamped_window_store_with_headers as timestamped_window_store_with_headers,
    versioned_store as versioned_store,
    window_store as window_store,
)
