"""Connectors: sinks that write topics to other systems, and sources that read other systems into topics."""

from streams.connect.delta_sink import DeltaSink
from streams.connect.errors import ConnectError, SinkFencedError
from streams.connect.folder_source import FolderSource
from streams.connect.growing_file_source import GrowingFileSource
from streams.connect.http_sink import HttpSink
from streams.connect.http_source import HttpSource
from streams.connect.iceberg_sink import IcebergSink
from streams.connect.kinds import Side, kind_named, make
from streams.connect.lifecycle import WorkerProgress
from streams.connect.parquet_manifest import ManifestFile, ParquetManifest
from streams.connect.parquet_sink import ParquetSink
from streams.connect.postgres_polling_source import PostgresPollingSource
from streams.connect.postgres_sink import PostgresSink
from streams.connect.postgres_source import PostgresSource
from streams.connect.protocol import Guarantee, Position, SinkBlock, SinkConnector, SourceBlock, SourceConnector
from streams.connect.sink_worker import SinkWorker
from streams.connect.source_worker import SourceWorker
from streams.connect.sql_sink import SqlSink
from streams.connect.webhook_source import WebhookSource
from streams.connect.worker_settings import SinkSettings, SourceSettings

__all__ = [
    "ConnectError",
    "DeltaSink",
    "FolderSource",
    "GrowingFileSource",
    "Guarantee",
    "HttpSink",
    "HttpSource",
    "IcebergSink",
    "ManifestFile",
    "ParquetManifest",
    "ParquetSink",
    "Position",
    "PostgresPollingSource",
    "PostgresSink",
    "PostgresSource",
    "Side",
    "SinkBlock",
    "SinkConnector",
    "SinkFencedError",
    "SinkSettings",
    "SinkWorker",
    "SourceBlock",
    "SourceConnector",
    "SourceSettings",
    "SourceWorker",
    "SqlSink",
    "WebhookSource",
    "WorkerProgress",
    "kind_named",
    "make",
]
