"""Consumer, producer and admin client.  They reach a cluster only through ``broker=``."""

from streams.clients.accumulator import oversized
from streams.clients.admin import EARLIEST, LATEST, Admin, GroupListing
from streams.clients.application_reset import ResetPlan, ResetTarget
from streams.clients.consumer import Consumer
from streams.clients.dead_letters import DeadLetters, Redriven, RedriveResult, grouped
from streams.clients.delivery import Delivery
from streams.clients.errors import (
    AuthenticationError,
    DisconnectedError,
    GroupExistsError,
    GroupNotEmptyError,
    NoOffsetError,
    PartitionerError,
    RequestTimeoutError,
    StatefulGroupError,
    TopicExistsError,
    WakeupError,
)
from streams.clients.internal_topics import LANES_GROUP, InternalTopic, internal_topics, is_generated
from streams.clients.metadata import MetadataCache
from streams.clients.network import ANY_NODE, ONE_BROKER, Backoff, Network
from streams.clients.parallel import ParallelConsumer
from streams.clients.partitioners import STRATEGIES, Strategy
from streams.clients.producer import Producer
from streams.clients.records import GroupMetadata, OffsetAndTimestamp
from streams.clients.session import RebalanceListener
from streams.clients.tcp import Security, TcpCluster
from streams.core.client_settings import ConsumerSettings, ProducerSettings
from streams.core.partitioning import Partitioner
from streams.core.records import ConsumerRecord

__all__ = [
    "ANY_NODE",
    "Admin",
    "AuthenticationError",
    "Backoff",
    "Consumer",
    "ConsumerRecord",
    "ConsumerSettings",
    "DeadLetters",
    "Delivery",
    "DisconnectedError",
    "EARLIEST",
    "GroupExistsError",
    "GroupListing",
    "GroupMetadata",
    "GroupNotEmptyError",
    "LANES_GROUP",
    "LATEST",
    "MetadataCache",
    "Network",
    "NoOffsetError",
    "ONE_BROKER",
    "OffsetAndTimestamp",
    "ParallelConsumer",
    "Partitioner",
    "PartitionerError",
    "Producer",
    "ProducerSettings",
    "RebalanceListener",
    "RedriveResult",
    "Redriven",
    "RequestTimeoutError",
    "ResetPlan",
    "ResetTarget",
    "STRATEGIES",
    "Security",
    "StatefulGroupError",
    "Strategy",
    "TcpCluster",
    "TopicExistsError",
    "WakeupError",
    "InternalTopic",
    "internal_topics",
    "grouped",
    "is_generated",
    "oversized",
]
