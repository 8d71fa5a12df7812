"""A version of an application: its state and the formats of its state.

A version is created from a topology alone, or from a replay, which also provides the types that lambdas returned.
``takeover`` compares versions.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import evolve, field, frozen

from streams.comparison.matching import without_module
from streams.core.blocks.records import TaskId, TopicPartition
from streams.core.clock import VirtualClock
from streams.core.errors import SerializationError
from streams.core.metrics import Metrics
from streams.core.serdes.serdes import PinnedSerde, Serde, WindowedSerde
from streams.core.settings.config import StreamsConfig
from streams.replay.run.result import ReplayResult
from streams.runtime import ApplicationPlan, TaskState
from streams.state import KEY_TYPE, VALUE_TYPE, StoreSpec, open_store
from streams.topology import SubTopology, Topology, sub_topologies

#: Display names of the serdes of plain types.
_WORDS = {"string": "str", "long": "int", "double": "float", "boolean": "bool", "null": "None"}
_JSON = "JSON"


@frozen
class SerdeForm:
    """The format of keys or values; formats of one ``family`` can be compatible.

    ``name`` is for messages.  ``schema`` distinguishes JSON types, and is None if unknown.  ``is_pinned`` marks an
    undeclared type that a replay has determined as ``name``; if ``family`` is "", the type is not known yet.
    """

    name: str
    family: str
    schema: str | None = None
    is_pinned: bool = False
    #: Module and name of the pinned class.
    pinned_as: str | None = None

    @classmethod
    def of(cls, serde: Serde[Any], type_name: str | None = None) -> "SerdeForm":
        """Return the format of a serde; ``type_name`` is the type that a replay has found if none is declared."""
        if isinstance(serde, PinnedSerde):
            class_name = type_name or serde.type_name
            if class_name is None:
                return cls("an undeclared type", "", is_pinned=True)
            return evolve(_named(class_name), is_pinned=True, pinned_as=class_name)
        if isinstance(serde, WindowedSerde):
            inner = cls.of(serde.inner)
            prefix = serde.name[: len(serde.name) - len(serde.inner.name)]
            return cls(_windowed_name(prefix, inner.name), prefix + inner.family, inner.schema)
        return evolve(_named(serde.name), schema=_schema(serde))

    def is_read_as(self, other: "SerdeForm") -> bool | None:
        """Return whether the format ``other`` can read bytes of this format, or None if this depends on the bytes."""
        if not self.family or not other.family:
            return True if self.is_pinned and other.is_pinned else None
        if self.family != other.family:
            return False
        if self.family != _JSON:
            return True
        if self.schema is None or other.schema is None:
            return True if self.name == other.name else None
        return True if self.schema == other.schema else None


def _named(name: str) -> SerdeForm:
    if name == "json" or name.startswith(("json:", "class:")) or name == "tuple":
        return SerdeForm(without_module(name).removeprefix("class:").removeprefix("json:"), _JSON)
    plain = without_module(name)
    return SerdeForm(_WORDS.get(plain, plain), plain)


def _windowed_name(prefix: str, inner: str) -> str:
    kind, _, size = prefix.rstrip(":").partition(":")
    if kind == "count_windowed":
        return f"windows of {size} records of {inner}"
    return f"windows of {int(size) / 1000:g} s of {inner}" if kind == "time_windowed" else f"sessions of {inner}"


def _schema(serde: Serde[Any]) -> str | None:
    """Return a digest of the JSON schema of a serde, or None if it is not a JSON serde with a type."""
    import msgspec

    recipe = serde._recipe
    if not (serde.name.startswith(("json", "class:")) and len(recipe[1]) == 1):
        return None
    try:
        schema = msgspec.json.schema(recipe[1][0])
    except (TypeError, ValueError, KeyError, NameError):
        return None  # A type without a schema is identified by its name.
    return hashlib.blake2b(json.dumps(schema, sort_keys=True, default=repr).encode(), digest_size=8).hexdigest()


@frozen(eq=False)
class Version:
    """One version of an application, over topics with given partition counts.

    ``plan`` is the plan of a live application.  ``times`` has the names of the stream times that operators commit with
    the offsets: a node name, or a node name, "/" and a name chosen by the operator.
    """

    topology: Topology
    config: StreamsConfig
    #: Partition counts of external topics, inputs and outputs.
    external: Mapping[str, int]
    plan: ApplicationPlan
    times: frozenset[str]
    #: Pinned types of stores: store name -> (key type, value type).
    types: Mapping[str, tuple[str | None, str | None]] = field(factory=dict)
    #: Nodes with punctuations that were due in the replay.
    timers: frozenset[str] = frozenset()
    result: ReplayResult | None = None

    @classmethod
    def planned(
        cls,
        topology: Topology,
        config: StreamsConfig,
        partitions: int | None = None,
        topics: Iterable[str] = (),
    ) -> "Version":
        """Return a version that has not been replayed.

        ``partitions`` is the partition count of topics that declare none (default 1); ``topics`` are the
        existing topics, against which patterns of sources are matched.

        Raises:
            TopologyError: the topology is incomplete, or its inputs are not co-partitioned.
        """
        counts: dict[str, int] = {}
        for sub in sub_topologies(topology, list(topics)):
            for name in (*sub.source_topics, *sub.sink_topics):
                declared = topology.topics.get(name)
                if name not in topology.internal_topics:
                    counts[name] = (declared.partitions if declared is not None else None) or partitions or 1
        return cls._make(topology, config, counts)

    @classmethod
    def of(cls, result: ReplayResult) -> "Version":
        """Return the version that a replay has run, with the types of values that user functions returned."""
        session = result.session
        assert session.schedule is not None
        types = dict(_pinned(session.topology, result))
        timers = {row[0] for checkpoint in session.state.checkpoints.values() for row in checkpoint.get("timers", ())}
        version = cls._make(session.topology, session.config, session.schedule.application.partitions)
        return evolve(version, types=types, timers=frozenset(timers), result=result)

    @classmethod
    def _make(cls, topology: Topology, config: StreamsConfig, counts: Mapping[str, int]) -> "Version":
        plan = ApplicationPlan.make(topology, config, VirtualClock(0), counts)
        return cls(topology, config, dict(counts), plan, frozenset(_operator_times(plan)))

    @property
    def subs(self) -> list[SubTopology]:
        """The sub-topologies that have tasks."""
        return [sub for sub in self.plan.subs if not sub.is_global]

    def sub_of(self, store: str) -> SubTopology:
        """Return the sub-topology of a store."""
        return next(sub for sub in self.subs if store in sub.stores)

    def forms(self, store: str) -> tuple[SerdeForm, SerdeForm]:
        """Return the formats of the keys and values of a store."""
        spec = self.topology.stores[store]
        key, value = self.types.get(store, (None, None))
        return SerdeForm.of(spec.key_serde, key), SerdeForm.of(spec.value_serde, value)

    def broker_topics(self) -> dict[str, int]:
        """Return all topics that this version uses on a broker, with their partition counts."""
        internal = {item.name: item.partitions for item in self.plan.internal_topics()}
        return dict(self.external) | internal

    def first_topic(self, sub: SubTopology) -> str | None:
        """Return the topic whose committed offsets include a sub-topology's stream times; None if it has no tasks."""
        inputs = self.plan.inputs(TaskId(sub.id, 0)) if TaskId(sub.id, 0) in self.plan.groups else []
        return inputs[0].topic if inputs else None


def _operator_times(plan: ApplicationPlan) -> Iterable[str]:
    """Yield the names of all stream times that operators keep, by binding the operators as a task does."""
    shared = {name: open_store(store.spec) for name, store in plan.topology.global_stores.items()}
    for sub in plan.subs:
        task_id = TaskId(sub.id, 0)
        if sub.is_global or task_id not in plan.groups:
            continue
        stores: dict[str, Any] = {name: open_store(_in_memory(plan.topology.stores[name])) for name in sub.stores}
        # The stores are declared incomplete, so that no user code runs.
        state = TaskState(stores, shared, is_complete=False)
        task = plan.open_task(task_id, state, Metrics())
        yield from task.operator_times
        for store in stores.values():
            store.close()
    for store in shared.values():
        store.close()


def _in_memory(spec: StoreSpec) -> StoreSpec:
    return evolve(spec, is_persistent=False, has_changelog=False)


def _pinned(topology: Topology, result: ReplayResult) -> Iterable[tuple[str, tuple[str | None, str | None]]]:
    """Yield the types that a replay has found for undeclared store serdes, and set the serdes to these types."""
    for refs in result.session.state.stores.values():
        for name, ref in refs.items():
            spec = topology.stores[name]
            type_names = ref.carried.get(KEY_TYPE), ref.carried.get(VALUE_TYPE)
            key, value = (None if part is None else part.decode() for part in type_names)
            if key is None and value is None:
                continue
            for serde, type_name in ((spec.key_serde, key), (spec.value_serde, value)):
                if type_name is not None and isinstance(serde, PinnedSerde):
                    try:
                        serde.pin(type_name)
                    except SerializationError:
                        continue  # The class no longer exists: its raw bytes are shown.
            yield name, (key, value)


#: Deserializes bytes that a version wrote.
Reader = Callable[[bytes | None], Any]


def partition_groups(version: Version) -> Mapping[TopicPartition, int]:
    """Return the partition group (the partition number of the task) of each partition that tasks read."""
    return {
        item.partition: task_id.partition for task_id in version.plan.groups for item in version.plan.inputs(task_id)
    }
