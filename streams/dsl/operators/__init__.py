"""Stateful operators of the DSL: frozen values that a task binds to closures over its stores."""

from streams.dsl.operators.aggregate import (
    StreamAggregate,
    StreamCount,
    StreamReduce,
    TableAggregate,
    TableCount,
    TableReduce,
)
from streams.dsl.operators.changes import change_serde
from streams.dsl.operators.foreign_key import (
    ForeignTableJoin,
    ResponseJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
)
from streams.dsl.operators.getters import (
    FilteredValues,
    JoinedValues,
    MappedValues,
    StoreValues,
    TableValues,
    TransformedValues,
)
from streams.dsl.operators.grace_buffer import grace_store
from streams.dsl.operators.joining import JoinKind
from streams.dsl.operators.session import SessionAggregate, SessionCount, SessionReduce
from streams.dsl.operators.sliding import SlidingAggregate, SlidingCount, SlidingReduce
from streams.dsl.operators.stream_join import JoinBuffer, StreamSelfJoin, StreamStreamJoin
from streams.dsl.operators.subscriptions import (
    response_partition,
    response_serde,
    subscription_partition,
    subscription_serde,
    subscription_store,
)
from streams.dsl.operators.suppress import Suppress, SuppressedValues, suppress_store
from streams.dsl.operators.table_join import (
    StreamGlobalTableJoin,
    StreamTableJoin,
    TableJoinMerge,
    TableTableJoin,
)
from streams.dsl.operators.tables import (
    TableFilter,
    TableGroupMap,
    TableMapValues,
    TableSource,
    TableTransformValues,
    ToTable,
)
from streams.dsl.operators.unmatched import unmatched_store
from streams.dsl.operators.windowed import WindowAggregate, WindowCount, WindowReduce

__all__ = [
    "FilteredValues",
    "ForeignTableJoin",
    "JoinBuffer",
    "JoinKind",
    "JoinedValues",
    "MappedValues",
    "ResponseJoin",
    "SessionAggregate",
    "SessionCount",
    "SessionReduce",
    "SlidingAggregate",
    "SlidingCount",
    "SlidingReduce",
    "StoreValues",
    "StreamAggregate",
    "StreamCount",
    "StreamGlobalTableJoin",
    "StreamReduce",
    "StreamSelfJoin",
    "StreamStreamJoin",
    "StreamTableJoin",
    "SubscriptionJoin",
    "SubscriptionReceive",
    "SubscriptionSend",
    "Suppress",
    "SuppressedValues",
    "TableAggregate",
    "TableCount",
    "TableFilter",
    "TableGroupMap",
    "TableJoinMerge",
    "TableMapValues",
    "TableReduce",
    "TableSource",
    "TableTableJoin",
    "TableTransformValues",
    "TableValues",
    "ToTable",
    "TransformedValues",
    "WindowAggregate",
    "WindowCount",
    "WindowReduce",
    "change_serde",
    "grace_store",
    "response_partition",
    "response_serde",
    "subscription_partition",
    "subscription_serde",
    "subscription_store",
    "suppress_store",
    "unmatched_store",
]
