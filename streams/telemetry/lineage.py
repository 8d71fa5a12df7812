"""Events of OpenLineage at the start and the end of an application or a replay. Needs the extra ``openlineage``.

A job is an application, and a run is one instance or one replay of it; datasets are the topics that it reads and
writes, or their history.  A thread sends the events, so that a collector that does not answer holds nothing up.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from attrs import define, field, frozen
from msgspec import inspect

from streams.core.clock import Clock, SystemClock
from streams.core.concurrency.threads import Signal, SystemThreads, Threads, Worker
from streams.core.errors import ConfigError
from streams.core.installation import installed_version, pip_install
from streams.core.settings.config import StreamsConfig
from streams.core.topic import Topic
from streams.topology import Topology
from streams.values import object_type

try:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import error_message_run, job_type_job, processing_engine_run, schema_dataset
    from openlineage.client.transport.http import HttpConfig, HttpTransport
    from openlineage.client.uuid import generate_new_uuid
except ImportError as error:
    raise ConfigError(f"OpenLineage needs its client ({error}): {pip_install('openlineage')}") from None

log = logging.getLogger(__name__)

#: Seconds after which a request has failed, and how often it is sent again.
_TIMEOUT_S = 5.0
_RETRIES = 2
#: How long the end of an application waits for its last event, in milliseconds.
CLOSE_MS = 20_000


@frozen
class LineageDataset:
    """What a job reads or writes: its namespace and name, and the topic whose types it has."""

    namespace: str
    name: str
    topic: str

    @classmethod
    def at(cls, place: str, topic: str) -> "LineageDataset":
        """Return the dataset of a file or folder, which is a path or a URI, named as OpenLineage does."""
        scheme, is_uri, rest = place.partition("://")
        if not is_uri or scheme == "file":
            return cls("file", os.path.abspath(rest if is_uri else place), topic)
        bucket, _, path = rest.partition("/")
        return cls(f"{scheme}://{bucket}", path or "/", topic)


@frozen
class LineageJob:
    """What kind of job runs, STREAMING or BATCH, and what it reads and writes."""

    processing: str
    kind: str
    inputs: Sequence[LineageDataset]
    outputs: Sequence[LineageDataset]

    @classmethod
    def of_application(cls, topology: Topology, cluster: str) -> "LineageJob":
        """Return the job of an application: its topics on a cluster, without internal ones."""
        inputs, outputs = topics_of(topology)
        return cls(
            "STREAMING",
            "APPLICATION",
            [LineageDataset(cluster, name, name) for name in inputs],
            [LineageDataset(cluster, name, name) for name in outputs],
        )


def topics_of(topology: Topology) -> tuple[list[str], list[str]]:
    """Return the names of the topics that a topology reads and writes, without internal ones."""
    internal = set(topology.internal_topics)
    sources = [*topology.sources(), *(store.source for store in topology.global_stores.values())]
    inputs = {name for source in sources for name in source.topics}
    outputs = {sink.topic for sink in topology.sinks() if sink.topic is not None}
    return sorted(inputs - internal), sorted(outputs - internal)


@define(eq=False)
class LineageEvents:
    """Sends START, and then COMPLETE or FAIL, for one run of a job.

    An event that cannot be sent is logged, and not sent later.
    """

    _config: StreamsConfig
    _topology: Topology
    _clock: Clock
    _threads: Threads
    _job: LineageJob
    _run_id: str = field(init=False, factory=lambda: str(generate_new_uuid()))
    _ends: Signal = field(init=False)
    _failure: BaseException | None = field(init=False, default=None)
    _worker: Worker | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self._ends = self._threads.signal()

    def start(self) -> None:
        """Send START, from a thread that then waits for the end."""
        self._worker = self._threads.start("openlineage", self._send_all)

    def close(self, failure: BaseException | None) -> None:
        """Send FAIL if there is a failure, otherwise COMPLETE, and wait up to ``CLOSE_MS``.  Idempotent."""
        if self._worker is None or self._ends.is_set():
            return
        self._failure = failure
        self._ends.set()
        if not self._worker.join(CLOSE_MS):
            log.warning("OpenLineage: %s has not taken the last event of run %s", self._url, self._run_id)

    @property
    def _url(self) -> str:
        return self._config.openlineage_url

    def _send_all(self) -> None:
        retry = {"total": _RETRIES, "backoff_factor": 0.3, "status_forcelist": [500, 502, 503, 504]}
        transport = HttpTransport(HttpConfig(self._url, timeout=_TIMEOUT_S, retry=retry))
        client = OpenLineageClient(transport=transport)
        try:
            self._send(client, RunState.START)
            self._ends.wait()
            self._send(client, RunState.COMPLETE if self._failure is None else RunState.FAIL)
        finally:
            client.close()

    def _send(self, client: Any, state: Any) -> None:
        try:
            client.emit(self._event(state))
        except Exception as error:  # noqa: BLE001 - whatever a collector or its connection does, the application goes on.
            log.warning("OpenLineage: %s of run %s is not sent to %s: %s", state.name, self._run_id, self._url, error)

    def _event(self, state: Any) -> Any:
        config, job = self._config, self._job
        engine = processing_engine_run.ProcessingEngineRunFacet(installed_version() or "unknown", "streams")
        facets: dict[str, Any] = {"processing_engine": engine}
        if self._failure is not None:
            text = f"{type(self._failure).__name__}: {self._failure}"
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(text, "Python")
        kind = job_type_job.JobTypeJobFacet(job.processing, "STREAMS", job.kind)
        return RunEvent(
            eventTime=datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(),
            producer=f"urn:python:streams:{installed_version() or 'unknown'}",
            run=Run(self._run_id, facets),
            job=Job(config.openlineage_namespace, config.application_id, {"jobType": kind}),
            eventType=state,
            inputs=[InputDataset(it.namespace, it.name, facets=self._schema(it.topic)) for it in job.inputs],
            outputs=[OutputDataset(it.namespace, it.name, facets=self._schema(it.topic)) for it in job.outputs],
        )

    def _schema(self, name: str) -> dict[str, Any]:
        topic = self._topology.topics.get(name)
        if topic is None:
            return {}
        fields = [schema_dataset.SchemaDatasetFacetFields(*pair) for pair in _fields(topic)]
        return {"schema": schema_dataset.SchemaDatasetFacet(fields)}


@contextmanager
def lineage_events(config: StreamsConfig, topology: Topology, job: LineageJob) -> Iterator[None]:
    """Send START, and at the end of the block COMPLETE, or FAIL with its error."""
    events = LineageEvents(config, topology, SystemClock(), SystemThreads(), job)
    events.start()
    try:
        yield
    except BaseException as error:
        events.close(error)
        raise
    events.close(None)


def _fields(topic: Topic[Any, Any]) -> Iterable[tuple[str, str]]:
    """Yield names and types: key, value, and the fields of a value that is of a class."""
    for name, serde in (("key", topic.key_serde), ("value", topic.value_serde)):
        # A class without its module.
        yield name, serde.name.rpartition(":")[2] if serde.name.startswith("class:") else serde.name
    value_type = object_type(topic.value_serde)
    info = None if value_type is None else inspect.type_info(value_type[0])
    for part in getattr(info, "fields", ()):
        yield f"value.{part.encode_name}", type(part.type).__name__.removesuffix("Type").lower()
