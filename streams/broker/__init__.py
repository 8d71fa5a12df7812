"""The embedded broker: topics, logs and consumer groups in one process, with nothing to install."""

from streams.broker.array import ArrayStorage as ArrayStorage
from streams.broker.assignable import AssignableTopics as AssignableTopics
from streams.broker.config import BrokerConfig as BrokerConfig
from streams.broker.embedded import EmbeddedBroker as EmbeddedBroker
from streams.broker.expiry import TTL_HEADER as TTL_HEADER
from streams.broker.expiry import ttl_header as ttl_header
from streams.broker.fetch_sessions import FetchSessions as FetchSessions
from streams.broker.file import FileStorage as FileStorage
from streams.broker.linked import LinkedStorage as LinkedStorage
from streams.broker.offline import OfflineTopics as OfflineTopics
from streams.broker.offline import offline_topics as offline_topics
from streams.broker.refusals import refusal as refusal
from streams.broker.repair import repair_data as repair_data
from streams.broker.serialization import Serialization as Serialization
from streams.broker.service import Broker as Broker
from streams.broker.storage import CompactableStorage as CompactableStorage
from streams.broker.storage import LogExtent as LogExtent
from streams.broker.storage import LogStorage as LogStorage
from streams.broker.storage import StorageContext as StorageContext
from streams.broker.storage import StorageFactory as StorageFactory
from streams.broker.tcp import ServerTls as ServerTls
from streams.broker.tcp import Users as Users
from streams.broker.topics import OFFSETS_TOPIC as OFFSETS_TOPIC
from streams.broker.topics import StorageChoice as StorageChoice
from streams.broker.topics import Storages as Storages
from streams.broker.topics import Topics as Topics
