"""The schema registry of the embedded broker: subjects with versions of schemas, over the HTTP API of Confluent's.

``routes`` has the paths of the API, ``subjects`` the operations, ``schema_records`` the records of the topic
``_schemas``, ``schema_topic`` the topic as a log, and ``http_server`` the HTTP server.  The package is imported by
``EmbeddedBroker.serve_registry`` only: most brokers have no registry.  Schemas and their rules are in
``streams.registry``.
"""

from streams.broker.registry.http_server import RegistryServer as RegistryServer
from streams.broker.registry.schema_topic import CONFIG as CONFIG
from streams.broker.registry.schema_topic import PARTITION as PARTITION
from streams.broker.registry.schema_topic import SchemaTopic as SchemaTopic
