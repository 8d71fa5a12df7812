"""Creates the clients of an instance from its settings: consumers, producers and the purger.

The module imports only ``clients``, ``core`` and ``protocol`` from outside ``runtime``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from attrs import define, field, frozen

from streams.clients import Consumer, MetricsPush, Network, Producer, RequestTimeoutError
from streams.core.client_settings import ConsumerSettings
from streams.core.clock import Clock
from streams.core.config import StreamsConfig
from streams.core.errors import ConfigError
from streams.core.metrics import Metric, Metrics, Scope
from streams.core.threads import SystemThreads, Threads, copied
from streams.protocol.transport import Cluster
from streams.runtime.assignment import TaskAssignment
from streams.runtime.homes import StateHome
from streams.runtime.progress import ProgressBoard
from streams.runtime.progress_reader import ProgressReader
from streams.runtime.progress_records import progress_partition
from streams.runtime.purge import Purger

_C = TypeVar("_C", Consumer, Producer)
#: How often to look whether brokers have given IDs to all consumers, in milliseconds.
_PAUSE_MS: Final = 20


@frozen
class ClientInstanceIds:
    """The IDs that brokers have given to the clients of an instance, by client ID (KIP-714, KIP-1076)."""

    consumers: Mapping[str, str]
    producers: Mapping[str, str]


@define(eq=False)
class InstanceClients:
    """Creates the clients of one instance; the process id of ``home`` is part of their client IDs."""

    _cluster: Cluster
    _config: StreamsConfig
    _clock: Clock
    _home: StateHome
    _metrics: Metrics
    #: What pushes the metrics of consumers and of producers, by client ID.
    _consumers: dict[str, MetricsPush] = field(factory=dict, init=False)
    _producers: dict[str, MetricsPush] = field(factory=dict, init=False)

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
        consumer = self._recorded(
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
        if (push := self._consumers.get(name)) is not None:
            push.others.append(partial(self._metrics_of_thread, name, number))
        return consumer

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

    def client_instance_ids(self, threads: Callable[[], Sequence[str]], timeout_ms: int) -> ClientInstanceIds:
        """Return the IDs that brokers have given to the clients for the push of metrics (KIP-1076).

        Waits until the consumers of all ``threads`` have theirs; other clients get theirs when they are used.

        Raises:
            ConfigError: metrics are not pushed (``enable_metrics_push``).
            RequestTimeoutError: a consumer has none in time.
        """
        if not self._config.client.enable_metrics_push:
            raise ConfigError("the clients have no instance ids: enable_metrics_push is False")
        deadline_ms, pause = self._clock.monotonic_ms() + timeout_ms, SystemThreads().signal()
        while missing := [name for name in threads() if self._consumers[name].awaits_id]:
            remaining_ms = deadline_ms - self._clock.monotonic_ms()
            if remaining_ms <= 0:
                raise RequestTimeoutError(
                    f"no instance id in time of {', '.join(missing)}: does the broker take metrics of clients?"
                )
            pause.wait(min(remaining_ms, _PAUSE_MS))
        return ClientInstanceIds(_ids_of(self._consumers), _ids_of(self._producers))

    def _metrics_of_thread(self, name: str, number: int) -> Iterator[Metric]:
        """Yield the metrics of a thread; the first one has those of the instance too (KIP-1076)."""
        for metric in self._metrics.collect():
            is_of_instance = metric.scope is Scope.CLIENT and number == 1
            if metric.scope.domain == "kafka.streams" and (metric.tags.get("thread-id") == name or is_of_instance):
                yield metric

    def _recorded(self, client: _C) -> _C:
        push = client.record_metrics(self._metrics)
        if push is not None:
            kind = self._consumers if isinstance(client, Consumer) else self._producers
            kind[push.client_id] = push
        return client

    @property
    def _consumer_settings(self) -> ConsumerSettings:
        settings = self._config.consumer
        return settings.replace(isolation_level="read_committed") if self._config.is_exactly_once else settings

    def name(self, role: str) -> str:
        """Return the client ID for a role in this process."""
        return f"{self._config.client_id or self._config.application_id}-{self._home.process_id[:8]}-{role}"


def _ids_of(pushes: dict[str, MetricsPush]) -> dict[str, str]:
    found = {name: push.client_instance_id for name, push in copied(pushes).items() if not push.why_ended}
    return {name: instance_id for name, instance_id in found.items() if instance_id is not None}
