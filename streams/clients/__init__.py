"""Consumer, producer and admin client.  They reach a cluster only through ``broker=``."""

from streams.clients.admin import Admin, GroupListing
from streams.clients.consumer import Consumer
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
from streams.clients.parallel import ParallelConsumer
from streams.clients.producer import Producer
from streams.clients.records import GroupMetadata, OffsetAndTimestamp
from streams.clients.session import RebalanceListener
from streams.clients.tcp import Security, TcpCluster
from streams.core.client_settings import ConsumerSettings, ProducerSettings
from streams.core.partitioning import Partitioner
from streams.core.records import ConsumerRecord

__all__ = [
    "Admin",
    "AuthenticationError",
    "Consumer",
    "ConsumerRecord",
    "ConsumerSettings",
    "Delivery",
    "DisconnectedError",
    "GroupExistsError",
    "GroupListing",
    "GroupMetadata",
    "GroupNotEmptyError",
    "NoOffsetError",
    "OffsetAndTimestamp",
    "ParallelConsumer",
    "Partitioner",
    "PartitionerError",
    "Producer",
    "ProducerSettings",
    "RebalanceListener",
    "RequestTimeoutError",
    "Security",
    "TcpCluster",
    "StatefulGroupError",
    "TopicExistsError",
    "WakeupError",
]
