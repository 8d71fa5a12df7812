"""Tasks and their drivers: queues, stages, commit, restore, assignment, threads and instances."""

from streams.runtime.answering import (
    Answers,
    StoreRequest,
    ask_global,
    ask_here,
    ask_instance,
    gathered,
    request_of,
    targets,
)
from streams.runtime.bounded import BoundedProgress
from streams.runtime.changes import StoreChange, StoreChanges, changes_of
from streams.runtime.checkpoint import Checkpoint
from streams.runtime.environment import Environment
from streams.runtime.facts import Directive
from streams.runtime.filling import LaneFilling
from streams.runtime.homes import home_of
from streams.runtime.instance import Instance
from streams.runtime.instance_metrics import metrics_of
from streams.runtime.lanes import merge_lanes
from streams.runtime.lateness import (
    LATE_REASONS,
    USUAL_LIMIT,
    DropLimit,
    Late,
    late_of,
)
from streams.runtime.layout import Plans, check_groups, log_unmatched_patterns
from streams.runtime.life import State, StateListener
from streams.runtime.listeners import ExceptionHandler, ExceptionResponse, InstanceListeners
from streams.runtime.locating import (
    KeyPartitioner,
    KeyQueryMetadata,
    StorePlaces,
    StreamsMetadata,
    check_up,
    owner_of,
    places_of,
    spec_of,
)
from streams.runtime.outbox import TopicColumns
from streams.runtime.plan import ApplicationPlan, Existing, InternalTopicPlan
from streams.runtime.preview import programs
from streams.runtime.provisioning import Provisioner
from streams.runtime.punctuation import TimerHeap, TimerRow
from streams.runtime.queries import StoreView
from streams.runtime.queues import PartitionQueue, TaskQueues
from streams.runtime.recording import Choice, Frame, Opening, Written, recorder_topic
from streams.runtime.restore import RestoreListener
from streams.runtime.rounds import Rounds
from streams.runtime.sources import TaskInput
from streams.runtime.stage import RUN_LIMIT, AsTheyCome, Policy, Stage, StageTask, WhenCertain
from streams.runtime.store_queries import (
    QUERIES,
    CountQuery,
    FailureReason,
    KeyQuery,
    MultiVersionedKeyQuery,
    Page,
    Position,
    PrefixQuery,
    QueryResult,
    RangeQuery,
    Rank,
    SessionKeyQuery,
    SessionRangeQuery,
    StateQueryResult,
    StoreEntry,
    StoreQuery,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
    merged_entries,
    ranker,
)
from streams.runtime.store_tables import arrow_stream, table_of
from streams.runtime.systemd import Notifier
from streams.runtime.task import CHANGELOG_POSITION, Task, TaskState
from streams.runtime.thread import StreamThread
from streams.runtime.thread_metrics import of_task, time_lag
from streams.runtime.topic_configs import changelog_config
from streams.runtime.watching import TaskWatch

__all__ = [
    "StoreChange",
    "StoreChanges",
    "changes_of",
    "Frame",
    "Opening",
    "Choice",
    "Written",
    "recorder_topic",
    "ask_instance",
    "arrow_stream",
    "table_of",
    "ranker",
    "CountQuery",
    "FailureReason",
    "KeyQuery",
    "MultiVersionedKeyQuery",
    "Page",
    "Position",
    "PrefixQuery",
    "QUERIES",
    "QueryResult",
    "RangeQuery",
    "Rank",
    "SessionKeyQuery",
    "SessionRangeQuery",
    "StateQueryResult",
    "StoreEntry",
    "StoreQuery",
    "TimestampedKeyQuery",
    "TimestampedRangeQuery",
    "VersionedKeyQuery",
    "WindowKeyQuery",
    "WindowRangeQuery",
    "merged_entries",
    "Answers",
    "StoreRequest",
    "ask_global",
    "ask_here",
    "gathered",
    "request_of",
    "targets",
    "StorePlaces",
    "check_up",
    "places_of",
    "ApplicationPlan",
    "AsTheyCome",
    "BoundedProgress",
    "CHANGELOG_POSITION",
    "Checkpoint",
    "Directive",
    "DropLimit",
    "Environment",
    "ExceptionHandler",
    "ExceptionResponse",
    "Existing",
    "Instance",
    "InstanceListeners",
    "InternalTopicPlan",
    "KeyPartitioner",
    "KeyQueryMetadata",
    "LATE_REASONS",
    "LaneFilling",
    "Late",
    "Notifier",
    "PartitionQueue",
    "Plans",
    "Policy",
    "Provisioner",
    "RUN_LIMIT",
    "RestoreListener",
    "Rounds",
    "Stage",
    "StageTask",
    "State",
    "StateListener",
    "StoreView",
    "StreamThread",
    "StreamsMetadata",
    "Task",
    "TaskInput",
    "TaskQueues",
    "TaskState",
    "TaskWatch",
    "TimerHeap",
    "TimerRow",
    "TopicColumns",
    "USUAL_LIMIT",
    "WhenCertain",
    "changelog_config",
    "check_groups",
    "home_of",
    "late_of",
    "merge_lanes",
    "metrics_of",
    "of_task",
    "owner_of",
    "programs",
    "spec_of",
    "log_unmatched_patterns",
    "time_lag",
]
