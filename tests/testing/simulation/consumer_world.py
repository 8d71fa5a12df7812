"""Worlds of plain consumers: one group of the classic or of the new protocol (KIP-848), in a storm, on virtual time."""

import re
from collections import defaultdict
from collections.abc import Sequence
from random import Random

from attrs import define, field

from streams.clients import Consumer, RebalanceListener, SubscriptionPattern
from streams.clients.consumer.topic_subscription import Topics
from streams.core.blocks.records import TopicPartition
from streams.core.errors import BrokerError
from streams.group import CoordinatorConfig, GroupState
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import OffsetCommit, OffsetCommitResponse
from streams.protocol.request import Request, Response
from streams.testing.simulation.conditions import ANY_LENGTH
from streams.testing.simulation.scheduler import SimProcess, SimThreads
from tests.testing.simulation.storm import REQUEST_MS, Site, Storm

GROUP = "readers"
TOPICS = {"read-a": 3, "read-b": 2}
SESSION_MS = 6_000
#: Kinds of faults with their weights.
_FAULTS = {
    "crash": 6,
    "leave": 4,
    "stall": 3,
    "cut": 3,
    "reset": 2,
    "silence": 2,
    "broker": 3,
    "host": 1,
    "coordinators": 3,
    "leaders": 2,
    "partitions": 1,
}


@define(eq=False)
class Holdings(RebalanceListener):
    """What a consumer was told to have; it commits what it gives up."""

    reader: "Reader"
    consumer: Consumer
    held: set[TopicPartition] = field(factory=set)

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Note what is added, which was not there."""
        if again := self.held.intersection(partitions):
            self.reader.world.storm.fail(f"{self.reader.name} was assigned {sorted(again)} again")
        self.held.update(partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit, and note what is gone, which was there."""
        self.reader.world.revoked += 1
        # The automatic commit before a revocation may be the first to learn of the removal.
        if self.consumer._session.member.generation_id < 0 and not self.reader.is_automatic:
            self.reader.world.storm.fail(f"{self.reader.name} may commit {list(partitions)}, though it was removed")
        self.reader.commit(self.consumer)
        self._drop(partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Note what is gone; it may be others' by now."""
        self.reader.world.lost += 1
        self._drop(partitions)

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        if strange := set(partitions) - self.held:
            self.reader.world.storm.fail(f"{self.reader.name} gives up {sorted(strange)}, which it did not have")
        self.held.difference_update(partitions)


@define(eq=False)
class Reader:
    """A machine with a consumer, which is started again."""

    world: "ConsumerWorld"
    name: str
    rng: Random
    instance: str | None
    is_regex: bool
    #: Whether the consumer commits by itself, in intervals.
    is_automatic: bool
    protocol: str
    holdings: Holdings | None = None
    site: Site[Consumer] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.site = Site(self.world.storm, self.name, self._read, lambda: f"starts with protocol {self.protocol}")

    def _read(self, process: SimProcess) -> None:
        storm, site = self.world.storm, self.site
        consumer = Consumer(
            storm.network.cluster(process),
            GROUP,
            clock=storm.scheduler.clock,
            threads=SimThreads(process),
            client_id=self.name,
            group_protocol=self.protocol,
            group_instance_id=self.instance,
            enable_auto_commit=self.is_automatic,
            auto_commit_interval_ms=1_000,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=1_000,
            max_poll_interval_ms=15_000,
            request_timeout_ms=REQUEST_MS,
            default_api_timeout_ms=4_000,
            metadata_max_age_ms=2_000,
            background_heartbeat=False,
        )
        if self.protocol == "consumer":
            # The assignor of the broker goes by the member ids.
            consumer._session.member.member_id = f"{self.name}-{site.starts}"
        site.client = consumer
        self.holdings = Holdings(self, consumer)
        consumer.subscribe(self._topics(), self.holdings)
        while not site.is_leaving:
            records = consumer.poll(300)
            for record in records:
                self.world.read(self, TopicPartition(record.topic, record.partition), record.offset)
            if records and not self.is_automatic:
                self.commit(consumer)
        site.client = None
        consumer.close(3_000)
        storm.log(self.name, "has closed")

    def _topics(self) -> Topics:
        """Return what to subscribe to: names, or a pattern, which every other time the broker matches if it does."""
        if not self.is_regex:
            return sorted(TOPICS)
        is_by_broker = self.protocol == "consumer" and self.site.starts % 2 == 1
        self.world.matched[is_by_broker] += 1
        return SubscriptionPattern("read-.*") if is_by_broker else re.compile("read-.*")

    def commit(self, consumer: Consumer) -> None:
        """Commit what was read; a refusal is counted by its code, or its kind."""
        try:
            consumer.commit_sync()
        except BrokerError as error:
            code = None if error.code is None else ErrorCode(error.code)
            name = code.name if type(error) is BrokerError and code is not None else type(error).__name__
            self.world.refused[name] += 1
            self.world.storm.log(self.name, f"commit: {name}")


@define(eq=False)
class ConsumerWorld:
    """One group of consumers, which ``run`` takes through the storm of a seed."""

    seed: int
    is_calm: bool = False
    #: Subscriptions to a pattern, by whether the broker matches it.
    matched: defaultdict[bool, int] = field(factory=lambda: defaultdict(int))
    #: How often listeners were told of revoked and of lost partitions.
    revoked: int = 0
    lost: int = 0
    seen: defaultdict[TopicPartition, set[int]] = field(factory=lambda: defaultdict(set))
    refused: defaultdict[str, int] = field(factory=lambda: defaultdict(int))
    committed: dict[TopicPartition, int] = field(factory=dict)
    _late: list[Request] = field(factory=list)
    storm: Storm = field(init=False)
    readers: list[Reader] = field(init=False)

    def __attrs_post_init__(self) -> None:
        rng = Random(f"consumers {self.seed}")
        config = CoordinatorConfig(
            **ANY_LENGTH, consumer_session_timeout_ms=SESSION_MS, consumer_heartbeat_interval_ms=1_000
        )
        storm = self.storm = Storm(
            self.seed,
            rng,
            GROUP,
            TOPICS,
            config,
            _FAULTS,
            self.is_calm,
            rng.choice((1, 2, 3)),
            apply_own=self._apply,
        )
        storm.network.on_late = self._late.append
        storm.broker.on_answer, storm.broker.on_change = self._on_answer, self._check_owners
        protocol = rng.choice(("consumer", "classic"))
        self.readers = [
            Reader(
                self,
                f"r{number}",
                Random(f"reader {self.seed} {number}"),
                f"static-{number}" if rng.random() < 0.3 else None,
                rng.random() < 0.4,
                rng.random() < 0.3,
                protocol,
            )
            for number in range(rng.randint(2, 4))
        ]
        storm.sites = [reader.site for reader in self.readers]

    def run(self) -> str:
        """Run the world; return the digest of its events.

        Raises:
            InvariantViolationError: an invariant is violated.
        """
        return self.storm.run(self._unfinished)

    def _apply(self, kind: str) -> None:
        if kind == "partitions" and self.storm.broker.is_up:
            topics = self.storm.broker.machine.topics
            topics.add_partitions("read-b", len(topics.by_name["read-b"].logs) + 1)

    # --- invariants -------------------------------------------------------------------------

    def read(self, reader: Reader, partition: TopicPartition, offset: int) -> None:
        """Note a record that a reader got, which no other reader may own that is certainly a member."""
        self.storm.reads += 1
        self.seen[partition].add(offset)
        self.storm.log(reader.name, f"reads {partition} {offset}")
        now_ms = self.storm.scheduler.clock.monotonic_ms()
        self._check_membership(reader, partition)
        for one in self.readers:
            other = one.site.client
            if one is reader or other is None or partition not in other.assignment() or other.alive_until_ms <= now_ms:
                continue
            if reader.site.client is not None and reader.site.client.alive_until_ms > now_ms:
                self.storm.fail(f"{partition} is read by {reader.name}, while {one.name} owns it")

    def _check_membership(self, reader: Reader, partition: TopicPartition) -> None:
        """A reader reads only what its listener was told that it has, and nothing while it is in no generation."""
        consumer, holdings = reader.site.client, reader.holdings
        if consumer is None or holdings is None:
            return
        if partition not in holdings.held:
            self.storm.fail(f"{reader.name} reads {partition}, which it was not assigned")
        if consumer._session.member.generation_id < 0:
            self.storm.fail(f"{reader.name} reads {partition}, though it was removed from the group")

    def _check_owners(self) -> None:
        """No partition has two owners in the coordinator."""
        shell = self.storm.broker.machine.coordinator.group(GROUP)
        if shell is None or shell.consumer is None:
            return
        owner: dict[object, str] = {}
        for member in shell.consumer.members.values():
            for place in member.owned:
                if (other := owner.setdefault(place, member.member_id)) != member.member_id:
                    self.storm.fail(f"partition {place[1]} is with {other} and with {member.member_id}")

    def _on_answer(self, request: Request, response: Response | Exception) -> None:
        """A commit that succeeds neither goes back, nor skips what nobody has read, nor is of a stranger."""
        if not isinstance(request, OffsetCommit) or not isinstance(response, OffsetCommitResponse):
            return
        is_late = any(one is request for one in self._late)
        for partition, code in response.errors.items():
            if code is not ErrorCode.NONE:
                continue
            offset = request.offsets[partition].offset
            if offset < self.committed.get(partition, 0) and not is_late:
                self.storm.fail(f"the commit of {partition} goes back to {offset} from {self.committed[partition]}")
            missing = set(range(offset)) - self.seen[partition]
            if missing:
                self.storm.fail(f"{offset} of {partition} is committed, and nobody has read {sorted(missing)[:3]}")
            self.committed[partition] = offset
        shell = self.storm.broker.machine.coordinator.group(GROUP)
        if ErrorCode.NONE in response.errors.values() and shell is not None and shell.consumer is not None:
            member = shell.consumer.members.get(request.member_id)
            if member is None or member.epoch != request.generation_id:
                self.storm.fail(f"a commit of {request.member_id} in epoch {request.generation_id} was taken")

    def _unfinished(self) -> str:
        """Return what is not settled yet, or an empty string."""
        owners: defaultdict[TopicPartition, list[str]] = defaultdict(list)
        for reader in self.readers:
            for partition in reader.site.client.assignment():
                owners[partition].append(reader.name)
        topics = self.storm.broker.machine.topics
        for name in TOPICS:
            for number in range(len(topics.by_name[name].logs)):
                partition = TopicPartition(name, number)
                if len(owners[partition]) != 1:
                    return f"{partition} is with {owners[partition]}"
                end = topics.log(partition).high_watermark
                if missing := set(range(end)) - self.seen[partition]:
                    return f"{partition}: nobody has read {sorted(missing)[:5]} of {end}"
        shell = self.storm.broker.machine.coordinator.group(GROUP)
        if shell is None:
            return "there is no group"
        if shell.consumer is not None:
            if shell.consumer.state != "Stable":
                return f"the group is {shell.consumer.state}"
            return "" if len(shell.consumer.members) == len(self.readers) else "the group has members that are gone"
        return "" if shell.state is GroupState.STABLE else f"the group is {shell.state}"
