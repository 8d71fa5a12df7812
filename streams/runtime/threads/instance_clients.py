"""Creates the clients of an instance from its settings: consumers, producers and the purger.

The module imports only ``clients``, ``core`` and ``protocol`` from outside ``runtime``.
"""

from collections.abc import Callable
from typing import TypeVar

from attrs import define

from streams.clients import Consumer, Network, Producer
from streams.core.clock import Clock
from streams.core.concurrency.threads import Threads
from streams.core.metrics import Metrics
from streams.core.settings.client_settings import ConsumerSettings
from streams.core.settings.config import StreamsConfig
from streams.protocol.transport import Cluster
from streams.runtime.assignment.assignment import TaskAssignment
from streams.runtime.in_step.progress_reader import ProgressReader
from streams.runtime.in_step.progress_records import progress_partition
from streams.runtime.plan.purge import Purger
from streams.runtime.stores.homes import StateHome
from streams.runtime.tasks.progress import ProgressBoard

_C = TypeVar("_C", Consumer, Producer)


@define(eq=False)
class InstanceClients:
    """Creates the clients of one instance; the process id of ``home`` is part of their client IDs."""

    _cluster: Cluster
    _config: StreamsConfig
    _clock: Clock
    _home: StateHome
    _metrics: Metrics
    _on_client: Callable[[Consumer | Producer], None]

    def reader(self, client_id: str) -> Consumer:
        """Return a consumer outside of any group, which reads changelogs and global topics from the beginning."""
        return self._recorded(
            Consumer(
                self._cluster,
                settings=self._consumer_settings,
                client_id=client_id,
                auto_offset_reset="earliest",
                clock=self._clock,
            )
        )

    def progress_reader(
        self, board: ProgressBoard, on_failure: Callable[[BaseException], None], threads: Threads
    ) -> ProgressReader:
        """Return the reader of the progress topic."""
        name = self.name("progress")
        consumer = self._recorded(
            Consumer(
                self._cluster,
                settings=self._consumer_settings,
                client_id=name,
                auto_offset_reset="none",
                # Whoever deletes the topic is told so.
                allow_auto_create_topics=False,
                clock=self._clock,
            )
        )
        partition = progress_partition(self._config.application_id)
        producer = self.producer(name, None)
        return ProgressReader(name, partition, board, consumer, producer, self._clock, on_failure, threads)

    def consumer(self, name: str, number: int, assignment: TaskAssignment) -> Consumer:
        """Return the consumer of a stream thread, which is a member of the application's group."""
        instance_id = self._config.consumer.group_instance_id
        return self._recorded(
            Consumer(
                self._cluster,
                self._config.application_id,
                settings=self._consumer_settings,
                client_id=name,
                assignors=assignment.membership,
                enable_auto_commit=False,
                # Asking for a missing repartition topic must not create it with any number of partitions.
                allow_auto_create_topics=False,
                group_instance_id=f"{instance_id}-{number}" if instance_id else None,
                clock=self._clock,
            )
        )

    def producer(self, name: str, number: int | None) -> Producer:
        """Return a producer; with exactly-once it is transactional, unless ``number``, the thread's number, is None."""
        config = self._config
        is_transactional = config.is_exactly_once and number is not None
        transactional_id = f"{config.application_id}-{self._home.process_id}-{number}"
        return self._recorded(
            Producer(
                self._cluster,
                settings=config.producer,
                client_id=name,
                transactional_id=transactional_id if is_transactional else None,
                background_sender=False,  # The stream thread polls it.
                clock=self._clock,
            )
        )

    def purger(self, name: str) -> Purger:
        """Return the purger, which deletes consumed records of repartition topics."""
        connection = self._cluster.connect(f"{name}-purge")
        network = Network(connection, self._clock, request_timeout_ms=self._config.client.request_timeout_ms)
        config = self._config
        keep_ms = config.flight_recorder_retention_ms if config.flight_recorder else 0
        return Purger(network, self._clock, config.repartition_purge_interval_ms, keep_ms)

    def _recorded(self, client: _C) -> _C:
        client.record_metrics(self._metrics)
        self._on_client(client)
        return client

    @property
    def _consumer_settings(self) -> ConsumerSettings:
        settings = self._config.consumer
        return settings.replace(isolation_level="read_committed") if self._config.is_exactly_once else settings

    def name(self, role: str) -> str:
        """Return the client ID for a role in this process."""
        return f"{self._config.client_id or self._config.application_id}-{self._home.process_id[:8]}-{role}"
