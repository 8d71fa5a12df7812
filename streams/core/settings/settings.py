"""Types of settings for type checkers: the arguments of ``Streams(**settings)``, ``Consumer`` and ``Producer``.

The classes of ``core.settings.config`` and ``core.settings.client_settings`` declare the settings and validate values
at run time.  Type checkers cannot derive the types here from those classes, so a test checks that they agree. This
module imports only other modules of ``core``.
"""

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Literal, Required, TypeAlias, TypedDict

from streams.core.event_time.timestamps import Extractor, ExtractorName, TimestampFunction
from streams.core.handlers import DeserializationHandler, ProcessingHandler, ProductionHandler
from streams.core.http.oauth import TokenProvider
from streams.core.wrapping import ProcessorWrapper

#: A duration, in milliseconds or as a ``timedelta``.
Milliseconds: TypeAlias = int | timedelta


class _Client(TypedDict, total=False):
    request_timeout_ms: Milliseconds
    retry_backoff_ms: Milliseconds
    metadata_max_age_ms: Milliseconds


class _Connection(TypedDict, total=False):
    reconnect_backoff_ms: Milliseconds
    reconnect_backoff_max_ms: Milliseconds
    connections_max_idle_ms: Milliseconds


class _Security(TypedDict, total=False):
    security_protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    sasl_username: str
    sasl_password: str
    ssl_ca_location: str | os.PathLike[str]
    ssl_certificate_location: str | os.PathLike[str]
    ssl_key_location: str | os.PathLike[str]
    ssl_key_password: str
    ssl_key_password_file: str | os.PathLike[str]
    ssl_key_password_command: str
    sasl_password_file: str | os.PathLike[str]
    sasl_password_command: str
    sasl_oauthbearer_token_provider: Literal["oidc", "msk_iam"] | TokenProvider
    sasl_oauthbearer_token_endpoint_url: str
    sasl_oauthbearer_client_id: str
    sasl_oauthbearer_client_secret: str
    sasl_oauthbearer_client_secret_file: str | os.PathLike[str]
    sasl_oauthbearer_client_secret_command: str
    sasl_oauthbearer_scope: str
    sasl_oauthbearer_extensions: str


class _Consumer(_Client, total=False):
    auto_offset_reset: Literal["earliest", "latest", "none"]
    max_poll_records: int
    max_poll_interval_ms: Milliseconds
    session_timeout_ms: Milliseconds
    heartbeat_interval_ms: Milliseconds
    group_instance_id: str | None
    fetch_max_wait_ms: Milliseconds
    client_rack: str
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    isolation_level: Literal["read_uncommitted", "read_committed"]


class _Producer(_Client, total=False):
    linger_ms: Milliseconds
    batch_size_bytes: int
    buffer_memory_bytes: int
    max_block_ms: Milliseconds
    max_request_bytes: int
    max_in_flight_requests: int
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    acks: Literal["all", "1", "0", -1, 1, 0]
    transaction_timeout_ms: Milliseconds
    delivery_timeout_ms: Milliseconds
    retry_backoff_max_ms: Milliseconds


class ConnectionOptions(_Connection, total=False):
    """Settings of a ``TcpCluster``."""

    connect_timeout_ms: Milliseconds
    hold_ms: Milliseconds


class ConsumerOptions(_Consumer, total=False):
    """Settings of a ``Consumer``."""

    client_id: str
    group_protocol: Literal["classic", "consumer"]
    group_remote_assignor: str
    enable_auto_commit: bool
    auto_commit_interval_ms: Milliseconds
    background_heartbeat: bool
    fetch_max_records: int
    default_api_timeout_ms: Milliseconds
    allow_auto_create_topics: bool


class ParallelOptions(ConsumerOptions, total=False):
    """Settings of a ``ParallelConsumer``; ``retry_backoff_ms`` applies to retries of its handlers."""

    batch_size: int
    max_concurrency: int
    max_attempts: int
    retry_backoff_max_ms: Milliseconds
    dead_letter_topic: str | None
    max_buffered: int
    commit_interval_ms: Milliseconds
    drain_timeout_ms: Milliseconds


class ProducerOptions(_Producer, total=False):
    """Settings of a ``Producer``."""

    client_id: str
    background_sender: bool
    enable_idempotence: bool | None
    transactional_id: str | None


class GroupClientOptions(TypedDict, total=False):
    """Settings of a ``GroupClient``."""

    client_id: str
    group_instance_id: str | None
    session_timeout_ms: Milliseconds
    heartbeat_interval_ms: Milliseconds
    rebalance_timeout_ms: Milliseconds
    retry_backoff_ms: Milliseconds


class Settings(_Consumer, _Producer, _Connection, _Security, total=False):
    """All settings of an application except its application id; see the settings reference."""

    bootstrap_servers: str | list[str] | tuple[str, ...]
    client_id: str
    application_server: str
    state_dir: str | os.PathLike[str]
    state_cleanup_dir_max_age_ms: Milliseconds
    num_stream_threads: int
    group_protocol: Literal["classic", "streams"]
    num_standby_replicas: int
    client_tags: str | Mapping[str, str]
    rack_aware_assignment_tags: str | list[str] | tuple[str, ...]
    acceptable_recovery_lag: int
    max_warmup_replicas: int
    probing_rebalance_interval_ms: Milliseconds
    processing_guarantee: Literal["at_least_once", "exactly_once_v2"]
    topology_optimization: Literal["none", "all"]
    ensure_explicit_internal_resource_naming: bool
    processor_wrapper: Literal["none"] | ProcessorWrapper
    default_store: Literal["rocksdb", "in_memory"]
    commit_interval_ms: Milliseconds
    max_task_idle_ms: Milliseconds
    repartition_patience_ms: Milliseconds
    repartition_buffer_bytes: int
    buffered_records_per_partition: int
    max_partition_ahead_ms: Milliseconds
    idle_close_ms: Milliseconds
    poll_ms: Milliseconds
    async_close_timeout_ms: Milliseconds
    columns: Literal["auto", "off", "check"]
    cache_max_bytes: int
    flight_recorder: bool
    flight_recorder_retention_ms: int | timedelta
    unknown_state: Literal["warn", "fail", "ignore"]
    misplaced_keys: Literal["warn", "fail", "ignore"]
    lost_records: Literal["fail", "rebuild", "accept"]
    fsync: Literal["never", "commit", "always"]
    task_timeout_ms: Milliseconds
    deserialization_handler: Literal["fail", "continue"] | DeserializationHandler
    processing_handler: Literal["fail", "continue"] | ProcessingHandler
    processing_exception_handler_global_enabled: bool
    production_handler: Literal["fail", "continue"] | ProductionHandler
    errors_dead_letter_queue_topic_name: str
    default_timestamp_extractor: ExtractorName | TimestampFunction | Extractor
    max_cycle_rounds: int
    repartition_purge_interval_ms: Milliseconds
    replication_factor: int
    metrics_recording_level: Literal["info", "debug", "trace", "off"]
    metrics_sample_window_ms: Milliseconds
    otlp_endpoint: str
    otlp_interval_ms: Milliseconds
    otlp_traces_per_million: int
    openlineage_url: str
    openlineage_namespace: str
    watchdog_ms: Milliseconds
    state_memory_max_bytes: int


class ApplicationSettings(Settings, total=False):
    """All settings of an application, including its application id."""

    application_id: Required[str]
