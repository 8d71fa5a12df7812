"""Creation of an application's missing topics, and checks of existing topics.

Provisioning runs at the start, and on the group leader when partition counts have changed.  On a cluster, requests are
retried after transient errors.  The module imports only ``clients``, ``core``, ``protocol`` and ``topology`` from
outside ``runtime``.
"""

import logging
from collections.abc import Mapping, Sequence

from attrs import define, field

from streams.clients import LATEST, Admin, is_by_key
from streams.clients.tcp import TcpCluster
from streams.core.blocks.records import TopicPartition
from streams.core.clock import Clock
from streams.core.errors import BrokerError, TopologyError, UnknownTopicError
from streams.core.settings.config import StreamsConfig
from streams.protocol.group_messages import OffsetAndMetadata
from streams.protocol.messages import TopicSpec
from streams.protocol.transport import Cluster
from streams.runtime.plan.grouping import START_OVER
from streams.runtime.plan.plan import InternalTopicPlan
from streams.topology import Topology, sub_topologies, through_topics

log = logging.getLogger(__name__)

_POLICY = "cleanup.policy"
_FOR_EVER = -1


@define(eq=False)
class Provisioner:
    """Creates and checks the topics of one application.

    With ``creates_topics``, missing source and sink topics are created with their declared partition counts; on an
    external cluster they are not created.
    """

    _cluster: Cluster
    _clock: Clock
    _config: StreamsConfig
    _topology: Topology
    _creates_topics: bool
    #: Topic settings, read together with the partition counts.
    _configs: dict[str, Mapping[str, str]] = field(factory=dict)
    #: Internal topics whose settings have been checked.
    _checked: set[str] = field(factory=set)

    def partition_counts(self) -> dict[str, int]:
        """Return the partition counts of all topics; missing declared topics are created if allowed."""
        with self._admin() as admin:
            counts = self._counts(admin)
            if not self._creates_topics:
                counts |= self._unlisted_counts(admin, counts)
            elif self._create_declared(admin, counts):
                counts = self._counts(admin)
            return counts

    def provide(self, plans: Sequence[InternalTopicPlan], partition_counts: Mapping[str, int]) -> None:
        """Create the missing internal topics, and check the existing internal topics.

        Raises:
            TopologyError: a topic has another partition count than planned, or settings with which records would be
                lost.
            BrokerError: a topic cannot be created.
        """
        missing = []
        for plan in plans:
            if plan.name not in partition_counts:
                missing.append(TopicSpec(plan.name, plan.partitions, plan.config, self._config.replication_factor))
            else:
                _check_count(plan, partition_counts[plan.name])
        unchecked = [plan for plan in plans if plan.name not in self._checked]
        if missing:
            with self._admin() as admin:
                self._create(admin, missing)
                if isinstance(self._cluster, TcpCluster):
                    # Metadata may still be propagating, and another instance may have created topics concurrently.
                    for name, topic in admin.describe_topics([spec.name for spec in missing]).items():
                        _check_count(next(plan for plan in plans if plan.name == name), len(topic.leaders))
        self._check(unchecked)

    def committed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return all committed offsets of the application's consumer group."""
        with self._admin() as admin:
            return admin.committed_offsets(self._config.application_id)

    def compacted(self, counts: Mapping[str, int]) -> list[str]:
        """Return the existing topics that tasks write and read, if they are compacted or their settings are secret."""
        topics = through_topics(self._topology, sub_topologies(self._topology, counts))
        topics = [topic for topic in topics if topic in counts]
        try:
            with self._admin() as admin:
                described = admin.describe_topics(topics) if topics else {}
        except BrokerError as error:
            log.debug("settings of topics %s cannot be read: %s", ", ".join(topics), error)
            return topics
        return [name for name, topic in described.items() if "compact" in _policies(topic.config)]

    def groups(self) -> list[str]:
        """Return the IDs of all groups in the cluster."""
        with self._admin() as admin:
            return [group.group_id for group in admin.list_groups()]

    def remove_former(self, client_prefix: str, process_id: str) -> None:
        """Remove the members of an earlier process before their sessions expire.

        A streams group knows the process of a member, a classic group the beginning of its client ID.  Static members
        of classic groups stay: their successors take their places at once.
        """
        group_id = self._config.application_id
        try:
            with self._admin() as admin:
                if self._config.group_protocol == "streams":
                    admin.remove_streams_members(group_id, lambda member: member.process_id == process_id)
                else:
                    admin.remove_members(
                        group_id,
                        lambda member: member.client_id.startswith(client_prefix) and not member.group_instance_id,
                    )
        except BrokerError as error:
            log.debug("members of an earlier process are not removed: %s", error)

    def has_members(self) -> bool:
        """Return whether the application's consumer group has members."""
        with self._admin() as admin:
            return bool(admin.describe_group(self._config.application_id).members)

    def ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return log end offsets, including records of open transactions."""
        with self._admin() as admin:
            return admin.list_offsets(dict.fromkeys(partitions, LATEST))

    def is_by_key(self, topic: str) -> bool:
        """Return whether the default partitioner is that of a topic."""
        try:
            with self._admin() as admin:
                return is_by_key(admin.describe_topics([topic])[topic])
        except BrokerError as error:
            # Kafka itself has no such setting, and the principal may not be allowed to read settings.
            log.debug("settings of topic %s cannot be read: %s", topic, error)
            return True

    def _admin(self) -> Admin:
        return Admin(
            self._cluster,
            client_id=f"{self._config.application_id}-admin",
            request_timeout_ms=self._config.client.request_timeout_ms,
            clock=self._clock,
        )

    def _counts(self, admin: Admin) -> dict[str, int]:
        topics = admin.all_topics()
        self._configs = {topic.name: topic.config for topic in topics}
        return {topic.name: len(topic.leaders) for topic in topics if not topic.is_internal}

    def _unlisted_counts(self, admin: Admin, partition_counts: Mapping[str, int]) -> dict[str, int]:
        """Return the partition counts of source topics that are not among these: just created, or without a leader."""
        sources = dict.fromkeys(topic for sub in sub_topologies(self._topology) for topic in sub.source_topics)
        missing = [
            name for name in sources if name not in partition_counts and name not in self._topology.internal_topics
        ]
        if not missing:
            return {}
        try:
            # Retried for some seconds, since the metadata of a new topic must be propagated to all brokers.
            return {name: len(topic.leaders) for name, topic in admin.describe_topics(missing).items()}
        except UnknownTopicError:
            # The caller reports the topics it needs.
            return {}

    def _create_declared(self, admin: Admin, partition_counts: Mapping[str, int]) -> bool:
        names: dict[str, None] = {}
        for sub in sub_topologies(self._topology):
            names |= dict.fromkeys((*sub.source_topics, *sub.sink_topics))
        if self._config.errors_dead_letter_queue_topic_name:
            names[self._config.errors_dead_letter_queue_topic_name] = None
        specs = []
        for name in names:
            if name not in partition_counts and name not in self._topology.internal_topics:
                declared = self._topology.topics.get(name)
                specs.append(TopicSpec(name, declared.partitions if declared and declared.partitions else -1))
        if specs:
            self._create(admin, specs)
        return bool(specs)

    def _create(self, admin: Admin, specs: Sequence[TopicSpec]) -> None:
        try:
            # Another instance that starts at the same time may have created the topic first.
            admin.create_topics(specs, exist_ok=True)
        except BrokerError as error:
            names = ", ".join(repr(spec.name) for spec in specs)
            raise BrokerError(f"topics {names} cannot be created: {error}", code=error.code) from error

    # --- checks of settings ---------------------------------------------------------------

    def _check(self, plans: Sequence[InternalTopicPlan]) -> None:
        """Reject existing internal topics whose settings would lose records.

        Raises:
            TopologyError: an internal topic has such settings.
        """
        if not plans:
            return
        configs = self._configs
        if isinstance(self._cluster, TcpCluster):
            configs = {**self._cluster.topic_configs([plan.name for plan in plans])}
        for plan in plans:
            actual = configs.get(plan.name, {})
            reason = misfit(plan.config, actual) if actual else None
            if reason is not None:
                needed = ", ".join(f"{name}={value}" for name, value in plan.config.items())
                raise TopologyError(
                    f"internal topic {plan.name!r} {reason}; set {needed} on it (kafka-configs --alter), "
                    "or delete it if its records are not needed, or start with a new application id"
                )
            for setting, has, needs in shortfalls(plan.config, actual):
                if isinstance(self._cluster, TcpCluster):
                    raise TopologyError(
                        f"internal topic {plan.name!r} has {setting}={has}, but the topology needs {needs}: a store "
                        f"that is restored from it would lack entries; set {setting}={needs} on it "
                        f"(`streams topics alter {plan.name} {setting}={needs}`, or kafka-configs --alter)"
                    )
                # The broker belongs to the application, which now keeps windows for longer: only entries older than the
                # previous retention are missing.
                log.warning(
                    "internal topic %r has %s=%s, but the topology needs %s: a store that is restored from it may "
                    "lack entries; set %s=%s on it",
                    plan.name,
                    setting,
                    has,
                    needs,
                    setting,
                    needs,
                )
            self._checked.add(plan.name)


def _check_count(plan: InternalTopicPlan, count: int) -> None:
    if count != plan.partitions:
        raise TopologyError(
            f"internal topic {plan.name!r} has {count} partitions, but the topology needs "
            f"{plan.partitions}: the partition count of an input has changed since it was created; "
            f"restore the old count, start a run over files in another state directory, or {START_OVER}"
        )


def misfit(needed: Mapping[str, str], actual: Mapping[str, str]) -> str | None:
    """Return why the cleanup policy of an existing topic would delete needed records, or None if it would not."""
    if _POLICY not in actual:
        return None
    needs = _policies(needed)
    has = _policies(actual)
    if "compact" in has and "compact" not in needs:
        return f"has {_POLICY}={actual[_POLICY]}: records with the same key would be lost before they are read"
    if "compact" in needs and "compact" not in has:
        return f"has {_POLICY}={actual[_POLICY]}: old state would be deleted and could not be restored"
    if "delete" in has and "delete" not in needs:
        return f"has {_POLICY}={actual[_POLICY]}: old state would be deleted and could not be restored"
    return None


def shortfalls(needed: Mapping[str, str], actual: Mapping[str, str]) -> list[tuple[str, int, int]]:
    """Return the times in a topic's settings that are shorter than needed, as (name, actual, needed)."""
    short = []
    kept_ms = _time(actual, "retention.ms")
    needed_ms = _time(needed, "retention.ms")
    if _policies(actual) == {"compact", "delete"} and kept_ms != _FOR_EVER and (needed_ms < 0 or kept_ms < needed_ms):
        short.append(("retention.ms", kept_ms, needed_ms))
    lag_ms, needed_lag_ms = (_time(config, "min.compaction.lag.ms", 0) for config in (actual, needed))
    if lag_ms < needed_lag_ms and _POLICY in actual:
        short.append(("min.compaction.lag.ms", lag_ms, needed_lag_ms))
    return short


def _policies(config: Mapping[str, str]) -> set[str]:
    return {policy.strip() for policy in config.get(_POLICY, "delete").split(",")}


def _time(config: Mapping[str, str], name: str, default: int = _FOR_EVER) -> int:
    return int(config.get(name, default))
