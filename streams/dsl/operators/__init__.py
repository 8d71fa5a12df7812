"""Stateful operators of the DSL: frozen values that a task binds to closures over its stores."""

from streams.dsl.operators.aggregate import StreamAggregate, TableAggregate
from streams.dsl.operators.buffered import buffer_spec
from streams.dsl.operators.changes import change_serde
from streams.dsl.operators.folds import COUNT, TABLE_COUNT, Fold, TableFold, reduction, table_reduction
from streams.dsl.operators.foreign_key import (
    ForeignTableJoin,
    ResponseJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
)
from streams.dsl.operators.getters import (
    ComputedValues,
    FilteredRow,
    JoinedValues,
    MappedRow,
    StoreValues,
    TableValues,
    TransformedRow,
)
from streams.dsl.operators.grace_buffer import WAITING_RECORD
from streams.dsl.operators.joining import JoinKind
from streams.dsl.operators.session import SessionAggregate
from streams.dsl.operators.sliding import SlidingAggregate
from streams.dsl.operators.stream_join import JoinBuffer, StreamSelfJoin, StreamStreamJoin
from streams.dsl.operators.subscriptions import (
    response_partition,
    response_serde,
    subscription_partition,
    subscription_serde,
    subscription_store,
)
from streams.dsl.operators.suppress import SUPPRESSED_CHANGE, Suppress, SuppressedValues
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
from streams.dsl.operators.windowed import WindowAggregate, window_aggregate

__all__ = [
    "SUPPRESSED_CHANGE",
    "WAITING_RECORD",
    "COUNT",
    "TABLE_COUNT",
    "ComputedValues",
    "FilteredRow",
    "Fold",
    "ForeignTableJoin",
    "JoinBuffer",
    "JoinKind",
    "JoinedValues",
    "MappedRow",
    "ResponseJoin",
    "SessionAggregate",
    "SlidingAggregate",
    "StoreValues",
    "StreamAggregate",
    "StreamGlobalTableJoin",
    "StreamSelfJoin",
    "StreamStreamJoin",
    "StreamTableJoin",
    "SubscriptionJoin",
    "SubscriptionReceive",
    "SubscriptionSend",
    "Suppress",
    "SuppressedValues",
    "TableAggregate",
    "TableFilter",
    "TableFold",
    "TableGroupMap",
    "TableJoinMerge",
    "TableMapValues",
    "TableSource",
    "TableTableJoin",
    "TableTransformValues",
    "TableValues",
    "ToTable",
    "TransformedRow",
    "WindowAggregate",
    "change_serde",
    "buffer_spec",
    "reduction",
    "response_partition",
    "response_serde",
    "subscription_partition",
    "subscription_serde",
    "subscription_store",
    "table_reduction",
    "unmatched_store",
    "window_aggregate",
]
