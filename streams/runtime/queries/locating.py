"""The location of keys and tasks in the group, as the leader has published it (KIP-67, KIP-535).

The module imports only ``core``, ``state`` and ``topology`` from outside ``runtime``.
"""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from streams.core.blocks.partitioning import partition_for
from streams.core.blocks.records import TaskId
from streams.core.errors import (
    InvalidStateStoreError,
    StateStoreNotAvailableError,
    StreamsNotStartedError,
    StreamsRebalancingError,
    UnknownStateStoreError,
)
from streams.core.serdes.serdes import PinnedSerde
from streams.runtime.instance.instance import Instance
from streams.runtime.plan.facts import AssignedTasks, Directive
from streams.runtime.plan.life import State
from streams.runtime.plan.plan import ApplicationPlan
from streams.state import StoreSpec
from streams.topology import SinkNode, copartitions

#: A function that maps topic, key, value (None in a query) and partition count to the partition of the key.
KeyPartitioner = Callable[[str, Any, Any, int], int | None]


@frozen
class StreamsMetadata:
    """A member of the application's group, as published by the group leader.

    ``client_id`` is the name of the stream thread, ``process_id`` identifies its instance, and
    ``application_server`` is the host:port of the setting, or "" if it is not set.
    """

    client_id: str
    process_id: str
    application_server: str = ""
    is_local: bool = False


@frozen
class KeyQueryMetadata:
    """The location of a key: its partition, the active member, and the members with standby replicas (KIP-535).

    ``active`` is None while the partition is unassigned.  A global store is on every instance: its partition is -1, and
    ``active`` is this instance.
    """

    store: str
    partition: int
    active: StreamsMetadata | None
    standbys: tuple[StreamsMetadata, ...] = ()


def owner_of(instance: Instance, name: str, key: Any, partitioner: KeyPartitioner | None = None) -> KeyQueryMetadata:
    """Return the location of a key in a store, according to the last assignment from the group leader.

    Raises:
        UnknownStateStoreError: the topology has no such store.
        StreamsNotStartedError, StateStoreNotAvailableError: the application is not running.
        StreamsRebalancingError: this instance has no assignment yet.
    """
    spec = spec_of(instance, name)
    check_up(instance, name)
    if name in instance.topology.global_stores:
        server = instance.endpoint
        here = StreamsMetadata(instance.client_name, instance.home.process_id, server, is_local=True)
        return KeyQueryMetadata(name, -1, here)
    places = places_of(instance, spec)
    task_id = None if places is None else places.task_of(key, partitioner)
    if places is None or task_id is None:
        raise StreamsRebalancingError(
            f"store {name!r}: the partition of a key of type {type(key).__qualname__} is not known yet: no tasks are "
            "assigned, or the store has had no key",
            store=name,
            state=instance.state.name,
        )
    return places.owner_of(task_id, instance.home.process_id)


def directive_of(instance: Instance) -> Directive | None:
    """Return the group leader's last directive to a thread of this instance, or None before the first assignment."""
    for member in list(instance.pool.members):
        if (directive := member.stream_thread.assignment.directive) is not None:
            return directive
    return None


def others_of(instance: Instance) -> list[StreamsMetadata]:
    """Return the other instances of the group, as published by its leader, with the client ID of one thread each."""
    own = instance.home.process_id
    directive = directive_of(instance)
    others = {
        place.process_id: StreamsMetadata(place.client_id, place.process_id, place.application_server)
        for place in (directive.places if directive is not None else ())
        if place.process_id != own
    }
    return list(others.values())


def spec_of(instance: Instance, name: str) -> StoreSpec:
    """Return the spec of the store with this name.

    Raises:
        UnknownStateStoreError: the topology has no such store.
    """
    topology = instance.topology
    if name in topology.stores:
        return topology.stores[name]
    if name in topology.global_stores:
        return topology.global_stores[name].spec
    names = ", ".join(sorted([*topology.stores, *topology.global_stores])) or "none"
    raise UnknownStateStoreError(f"there is no store {name!r}; the topology has: {names}", store=name)


def check_up(instance: Instance, name: str) -> None:
    """Check that the application is running; ``name`` is the store named in the error.

    Raises:
        StreamsNotStartedError, StateStoreNotAvailableError: the application has not started or no longer runs.
    """
    state = instance.state
    application_id = instance.config.application_id
    if state is State.CREATED:
        raise StreamsNotStartedError(
            f"store {name!r}: application {application_id!r} was not started; call start() first",
            store=name,
            state=state.name,
        )
    if not instance.life.is_up:
        raise StateStoreNotAvailableError(
            f"store {name!r}: application {application_id!r} is {state.name}; its stores are closed",
            store=name,
            state=state.name,
        )


@frozen(eq=False)
class StorePlaces:
    """The tasks of a store and the members that have them, according to one assignment from the group leader.

    As in Kafka Streams, keys are partitioned as in the topic with the most partitions of those that lead to the store.
    """

    plan: ApplicationPlan
    directive: Directive
    spec: StoreSpec
    #: The tasks with a partition of the store.
    tasks: tuple[TaskId, ...]
    #: All topics that these tasks read, by their names on the broker.
    inputs: frozenset[str]
    #: The partitions of these topics.
    input_partitions: frozenset[tuple[str, int]]
    _topic: str
    _count: int
    _by_partition: Mapping[int, TaskId]
    _partitioner: KeyPartitioner | None
    _owners: dict[TaskId, KeyQueryMetadata] = field(factory=dict)

    @classmethod
    def make(cls, plan: ApplicationPlan, directive: Directive, spec: StoreSpec) -> "StorePlaces":
        """Return the tasks of a store and the members that have them, according to ``directive``."""
        subs = {sub.id for sub in plan.subs if spec.name in sub.stores}
        groups = {task_id: plan.groups[task_id] for task_id in sorted(plan.groups) if task_id.sub_topology in subs}
        counts: dict[str, int] = {}
        for partition in (partition for group in groups.values() for partition in group):
            counts[partition.topic] = max(counts.get(partition.topic, 0), partition.partition + 1)
        joint = next((joint for joint in copartitions(plan.topology) if spec.name in joint.stores), None)
        leading = counts if joint is None else counts.keys() & set(joint.topics(plan.topology, counts))
        topic = max(leading, key=lambda topic: (counts[topic], topic), default="")
        by_partition = {tp.partition: task_id for task_id, group in groups.items() for tp in group if tp.topic == topic}
        count = counts.get(topic, 0)
        chosen = _own_partitioner(plan, topic)
        inputs = frozenset(map(plan.physical_topic, counts))
        read = frozenset((plan.physical_topic(tp.topic), tp.partition) for group in groups.values() for tp in group)
        return cls(plan, directive, spec, tuple(groups), inputs, read, topic, count, by_partition, chosen)

    def task_of(self, key: Any, partitioner: KeyPartitioner | None = None) -> TaskId | None:
        """Return the task of the partition to which a key belongs, or None if the partition is not known yet.

        Raises:
            InvalidStateStoreError: the partitioner returned no partition of the store.
        """
        chosen = partitioner or self._partitioner
        number = None if chosen is None or not self._count else chosen(self._topic, key, None, self._count)
        if number is not None and number not in range(self._count):
            raise InvalidStateStoreError(
                f"store {self.spec.name!r}: the partitioner returned {number!r:.60} for key {key!r:.60}, where "
                f"partitions are 0 to {self._count - 1}; return one of them, or None for the default",
                store=self.spec.name,
            )
        if number is None:
            serde = self.spec.key_serde
            if not self._count or (isinstance(serde, PinnedSerde) and not serde.is_pinned):
                # Serializing the key would pin the type of the store.
                return None
            number = partition_for(serde.serialize(key) or b"", self._count)
        return self._by_partition.get(number)

    def owner_of(self, task_id: TaskId, own_process: str) -> KeyQueryMetadata:
        """Return the active member and the standby members of a task; a member in ``own_process`` is this instance."""
        if (owner := self._owners.get(task_id)) is not None:
            return owner

        def shown(place: AssignedTasks) -> StreamsMetadata:
            return StreamsMetadata(
                place.client_id, place.process_id, place.application_server, is_local=place.process_id == own_process
            )

        places = self.directive.places
        active = next((shown(place) for place in places if task_id in place.active), None)
        standbys = tuple(shown(place) for place in places if task_id in place.standby)
        owner = self._owners[task_id] = KeyQueryMetadata(self.spec.name, task_id.partition, active, standbys)
        return owner


def places_of(instance: Instance, spec: StoreSpec) -> StorePlaces | None:
    """Return the tasks of a store and the members that have them, or None before the first assignment."""
    directive = directive_of(instance)
    if directive is None:
        return None
    places: StorePlaces | None = instance.located.get(spec.name)
    if places is None or places.directive is not directive:
        places = StorePlaces.make(instance.plan_of(directive.layout), directive, spec)
        instance.located[spec.name] = places
    return places


def _own_partitioner(plan: ApplicationPlan, topic: str) -> KeyPartitioner | None:
    """Return the custom partitioner of a repartition topic, or None if records are partitioned by the key's hash."""
    if topic not in plan.topology.internal_topics:
        return None
    nodes = plan.topology.nodes.values()
    return next(
        (node.partitioner for node in nodes if isinstance(node, SinkNode) and node.topic == topic and node.partitioner),
        None,
    )
