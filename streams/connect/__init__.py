"""Connectors: sinks that write topics to other systems, and sources that read other systems into topics."""

from streams.connect.errors import ConnectError, SinkFencedError
from streams.connect.files.folder_source import FolderSource
from streams.connect.files.growing_file_source import GrowingFileSource
from streams.connect.http.http_sink import HttpSink
from streams.connect.http.http_source import HttpSource
from streams.connect.http.webhook_source import WebhookSource
from streams.connect.kinds import Side, kind_named, make
from streams.connect.lake_sinks import DeltaSink, IcebergSink, ParquetSink
from streams.connect.lifecycle import WorkerProgress
from streams.connect.parquet_manifest import ManifestFile, ParquetManifest
from streams.connect.postgres.postgres_polling_source import PostgresPollingSource
from streams.connect.postgres.postgres_sink import PostgresSink
from streams.connect.postgres.postgres_source import PostgresSource
from streams.connect.protocol import Guarantee, Position, SinkBlock, SinkConnector, SourceBlock, SourceConnector
from streams.connect.sink_worker import SinkWorker
from streams.connect.source_worker import SourceWorker
from streams.connect.sql_sink import SqlSink
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
