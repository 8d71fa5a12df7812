"""The embedded broker: topics, logs and consumer groups in one process, with nothing to install."""

from streams.broker.assignable import AssignableTopics as AssignableTopics
from streams.broker.embedded import EmbeddedBroker as EmbeddedBroker
from streams.broker.fetch_sessions import FetchSessions as FetchSessions
from streams.broker.logs.array import ArrayStorage as ArrayStorage
from streams.broker.logs.config import BrokerConfig as BrokerConfig
from streams.broker.logs.expiry import TTL_HEADER as TTL_HEADER
from streams.broker.logs.expiry import ttl_header as ttl_header
from streams.broker.logs.file import FileStorage as FileStorage
from streams.broker.logs.linked import LinkedStorage as LinkedStorage
from streams.broker.logs.serialization import Serialization as Serialization
from streams.broker.logs.storage import CompactableStorage as CompactableStorage
from streams.broker.logs.storage import LogExtent as LogExtent
from streams.broker.logs.storage import LogStorage as LogStorage
from streams.broker.logs.storage import StorageContext as StorageContext
from streams.broker.logs.storage import StorageFactory as StorageFactory
from streams.broker.offline import OfflineTopics as OfflineTopics
from streams.broker.offline import offline_topics as offline_topics
from streams.broker.refusals import refusal as refusal
from streams.broker.repair import repair_data as repair_data
from streams.broker.service import Broker as Broker
from streams.broker.tcp import ServerTls as ServerTls
from streams.broker.tcp import Users as Users
from streams.broker.topics import OFFSETS_TOPIC as OFFSETS_TOPIC
from streams.broker.topics import StorageChoice as StorageChoice
from streams.broker.topics import Storages as Storages
from streams.broker.topics import Topics as Topics
