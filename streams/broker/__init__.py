"""The embedded broker: topics, logs and consumer groups in one process, with nothing to install."""

from streams.broker.array import ArrayStorage
from streams.broker.config import BrokerConfig, FsyncPolicy
from streams.broker.embedded import EmbeddedBroker
from streams.broker.expiry import TTL_HEADER, ttl_header
from streams.broker.file import FileStorage
from streams.broker.linked import LinkedStorage
from streams.broker.offline import OfflineTopics, offline_topics
from streams.broker.refusals import refusal
from streams.broker.repair import repair_data
from streams.broker.serialization import Serialization
from streams.broker.service import Broker
from streams.broker.storage import CompactableStorage, LogExtent, LogStorage, StorageContext, StorageFactory
from streams.broker.topics import OFFSETS_TOPIC, StorageChoice, Storages, Topics

__all__ = [
    "ArrayStorage",
    "Broker",
    "BrokerConfig",
    "CompactableStorage",
    "EmbeddedBroker",
    "FileStorage",
    "FsyncPolicy",
    "LinkedStorage",
    "LogExtent",
    "LogStorage",
    "OFFSETS_TOPIC",
    "OfflineTopics",
    "Serialization",
    "StorageChoice",
    "StorageContext",
    "StorageFactory",
    "Storages",
    "TTL_HEADER",
    "Topics",
    "offline_topics",
    "refusal",
    "repair_data",
    "ttl_header",
]
