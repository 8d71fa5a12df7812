"""The clients of an instance: consumers, producers and what else talks to the brokers, by its settings.

Imports clients.
"""

from typing import Literal

from attrs import define

from streams.clients.consumer import Consumer
from streams.clients.network import Network
from streams.clients.producer import Producer
from streams.core.clock import Clock
from streams.core.config import StreamsConfig
from streams.protocol.transport import Cluster
from streams.runtime.assignment import StreamsAssignor
from streams.runtime.homes import StateHome
from streams.runtime.purge import Purger


@define(eq=False)
class InstanceClients:
    """Makes the clients of one instance; ``home`` has the identity that they are named after."""

    _cluster: Cluster
    _config: StreamsConfig
    _clock: Clock
    _home: StateHome

    def reader(self, client_id: str) -> Consumer:
        """Return a consumer of changelogs or global topics, from their beginning."""
        config = self._config
        return Consumer(
            self._cluster,
            client_id=client_id,
            auto_offset_reset="earliest",
            isolation_level=self._isolation_level,
            fetch_max_wait_ms=config.fetch_max_wait_ms,
            fetch_max_bytes=config.fetch_max_bytes,
            max_partition_fetch_bytes=config.max_partition_fetch_bytes,
            request_timeout_ms=config.request_timeout_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            clock=self._clock,
        )

    def consumer(self, name: str, number: int, assignor: StreamsAssignor) -> Consumer:
        """Return the consumer of a stream thread, a member of the application's group."""
        config = self._config
        return Consumer(
            self._cluster,
            config.application_id,
            client_id=name,
            assignors=[assignor],
            auto_offset_reset=config.auto_offset_reset,
            enable_auto_commit=False,
            isolation_level=self._isolation_level,
            max_poll_records=config.max_poll_records,
            fetch_max_wait_ms=config.fetch_max_wait_ms,
            fetch_max_bytes=config.fetch_max_bytes,
            max_partition_fetch_bytes=config.max_partition_fetch_bytes,
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            request_timeout_ms=config.request_timeout_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            metadata_max_age_ms=config.metadata_max_age_ms,
            group_instance_id=f"{config.group_instance_id}-{number}" if config.group_instance_id else None,
            clock=self._clock,
        )

    def producer(self, name: str, number: int | None) -> Producer:
        """Return a producer; with exactly-once it has transactions, as the thread of that number, unless it is None."""
        config = self._config
        is_transactional = config.is_exactly_once and number is not None
        transactional_id = f"{config.application_id}-{self._home.process_id}-{number}"
        return Producer(
            self._cluster,
            client_id=name,
            linger_ms=config.linger_ms,
            batch_size=config.batch_size_bytes,
            buffer_memory_bytes=config.buffer_memory_bytes,
            max_block_ms=config.max_block_ms,
            max_request_size=config.max_request_bytes,
            max_in_flight=config.max_in_flight_requests,
            compression_type=config.compression_type,
            acks=-1 if config.acks == "all" else int(config.acks),
            request_timeout_ms=config.request_timeout_ms,
            delivery_timeout_ms=config.delivery_timeout_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
            transactional_id=transactional_id if is_transactional else None,
            transaction_timeout_ms=config.transaction_timeout_ms,
            metadata_max_age_ms=config.metadata_max_age_ms,
            clock=self._clock,
        )

    def purger(self, name: str) -> Purger:
        """Return what deletes the records of repartition topics that nobody reads again."""
        connection = self._cluster.connect(f"{name}-purge")
        network = Network(connection, self._clock, request_timeout_ms=self._config.request_timeout_ms)
        return Purger(network, self._clock, self._config.repartition_purge_interval_ms)

    @property
    def _isolation_level(self) -> Literal["read_committed", "read_uncommitted"]:
        wants_committed = self._config.is_exactly_once or self._config.isolation_level == "read_committed"
        return "read_committed" if wants_committed else "read_uncommitted"

    def name(self, role: str) -> str:
        """Return the client id of a role in this process."""
        return f"{self._config.client_id or self._config.application_id}-{self._home.process_id[:8]}-{role}"
