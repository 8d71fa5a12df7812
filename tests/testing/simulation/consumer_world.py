"""Worlds of plain consumers: one group of both protocols (KIP-848), in a storm, on virtual time."""

import hashlib
import logging
import re
from collections import defaultdict
from collections.abc import Sequence
from random import Random

from attrs import define, field

from streams.clients import Consumer, Producer, RebalanceListener, SubscriptionPattern
from streams.clients.topic_subscription import Topics
from streams.core.errors import BrokerError
from streams.core.records import TopicPartition
from streams.core.topic import Topic
from streams.group import CoordinatorConfig, GroupState
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import OffsetCommit, OffsetCommitResponse
from streams.protocol.request import Request, Response
from streams.testing.simulation.brokers import SimBroker
from streams.testing.simulation.cluster import SimNodes
from streams.testing.simulation.network import SimNetwork, Weather
from streams.testing.simulation.report import Counters, EventLog, InvariantViolationError
from streams.testing.simulation.scheduler import Scheduler, SimProcess, SimThreads, SpinDetector
from tests.testing.simulation.pushed import PushedWatch

GROUP = "readers"
TOPICS = {"read-a": 3, "read-b": 2}
SESSION_MS = 6_000
STORM_MS = 20_000
#: Virtual time after the storm within which everything must be read, and the group stable.
SETTLING_MS = 120_000
RECORDS = 120
_REQUEST_MS = 2_000
_WEATHER = (0.0, 0.002, 0.01)
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
            self.reader.world._fail(f"{self.reader.name} was assigned {sorted(again)} again")
        self.held.update(partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit, and note what is gone, which was there."""
        self.reader.world.revoked += 1
        # The automatic commit before a revocation may be the first to learn of the removal.
        if self.consumer._session.member.generation_id < 0 and not self.reader.is_automatic:
            self.reader.world._fail(f"{self.reader.name} may commit {list(partitions)}, though it was removed")
        self.reader.commit(self.consumer)
        self._drop(partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Note what is gone; it may be others' by now."""
        self.reader.world.lost += 1
        self._drop(partitions)

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        if strange := set(partitions) - self.held:
            self.reader.world._fail(f"{self.reader.name} gives up {sorted(strange)}, which it did not have")
        self.held.difference_update(partitions)


@define(eq=False)
class Reader:
    """A machine with a consumer, which is started again, with either protocol."""

    world: "ConsumerWorld"
    name: str
    rng: Random
    instance: str | None
    is_regex: bool
    #: Whether the consumer commits by itself, in intervals.
    is_automatic: bool
    protocol: str
    holdings: Holdings | None = None
    process: SimProcess | None = None
    consumer: Consumer | None = None
    is_leaving: bool = False
    starts: int = 0

    def start(self) -> None:
        """Start the process, unless it runs."""
        if self.process is not None:
            return
        self.starts += 1
        self.is_leaving = False
        spins = SpinDetector(lambda: self.world.reads, self._on_spin)
        process = self.process = SimProcess(self.world.scheduler, self.name, spins)
        self.world.log(self.name, f"starts with protocol {self.protocol}")
        process.spawn(lambda: self._run(process))

    def crash(self) -> None:
        """End the process without a word to the brokers."""
        if self.process is not None:
            self.world.log(self.name, "crashes")
            process, self.process, self.consumer = self.process, None, None
            process.is_alive = False
            self.world.scheduler.after(0, process.kill)

    def _on_spin(self) -> None:
        self.world.failures.append(InvariantViolationError(f"{self.name} polls on without a pause"))

    def _run(self, process: SimProcess) -> None:
        try:
            self._read(process)
        except BrokerError as error:
            # As an application would be, it is started again.
            self.world.log(self.name, f"ends: {type(error).__name__}")
            self.world.ended[type(error).__name__] += 1
        except Exception as error:
            self.world.failures.append(error)
        if self.process is process:
            self.process = self.consumer = None
            self.world.scheduler.after(500, self.start)

    def _read(self, process: SimProcess) -> None:
        world = self.world
        consumer = Consumer(
            world.network.cluster(process),
            GROUP,
            clock=world.scheduler.clock,
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
            request_timeout_ms=_REQUEST_MS,
            default_api_timeout_ms=4_000,
            metadata_max_age_ms=2_000,
            background_heartbeat=False,
        )
        if self.protocol == "consumer":
            # The assignor of the broker goes by the member ids.
            consumer._session.member.member_id = f"{self.name}-{self.starts}"
        self.consumer = consumer
        self.holdings = Holdings(self, consumer)
        consumer.subscribe(self._topics(), self.holdings)
        while not self.is_leaving:
            records = consumer.poll(300)
            for record in records:
                world.read(self, TopicPartition(record.topic, record.partition), record.offset)
            if records and not self.is_automatic:
                self.commit(consumer)
        self.consumer = None
        consumer.close(3_000)
        world.log(self.name, "has closed")

    def _topics(self) -> Topics:
        """Return what to subscribe to: names, or a pattern, which every other time the broker matches if it does."""
        if not self.is_regex:
            return sorted(TOPICS)
        is_by_broker = self.protocol == "consumer" and self.starts % 2 == 1
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
            self.world.log(self.name, f"commit: {name}")


@define(eq=False)
class ConsumerWorld:
    """One group of consumers, which ``run`` takes through the storm of a seed."""

    seed: int
    is_calm: bool = False
    #: The interval in which the clients push their metrics, or 0 if brokers take none; drawn apart from all else.
    metrics_ms: int = field(kw_only=True)
    scheduler: Scheduler = field(factory=Scheduler)
    counters: Counters = field(factory=Counters)
    history: EventLog = field(factory=EventLog)
    failures: list[Exception] = field(factory=list)
    reads: int = 0
    #: Subscriptions to a pattern, by whether the broker matches it.
    matched: defaultdict[bool, int] = field(factory=lambda: defaultdict(int))
    #: Wall-clock times in milliseconds at which each reader has read a record.
    read_times: defaultdict[str, list[int]] = field(factory=lambda: defaultdict(list))
    #: How often listeners were told of revoked and of lost partitions.
    revoked: int = 0
    lost: int = 0
    seen: defaultdict[TopicPartition, set[int]] = field(factory=lambda: defaultdict(set))
    refused: defaultdict[str, int] = field(factory=lambda: defaultdict(int))
    ended: defaultdict[str, int] = field(factory=lambda: defaultdict(int))
    faults: defaultdict[str, int] = field(factory=lambda: defaultdict(int))
    committed: dict[TopicPartition, int] = field(factory=dict)
    pushed: PushedWatch = field(factory=PushedWatch)
    _late: list[Request] = field(factory=list)
    _has_written: bool = False
    rng: Random = field(init=False)
    broker: SimBroker = field(init=False)
    nodes: SimNodes = field(init=False)
    network: SimNetwork = field(init=False)
    readers: list[Reader] = field(init=False)
    writer: SimProcess = field(init=False)

    @metrics_ms.default
    def _drawn_metrics_ms(self) -> int:
        return Random(f"metrics {self.seed}").choice((0, 500, 2_000))

    def __attrs_post_init__(self) -> None:
        rng = self.rng = Random(f"consumers {self.seed}")
        config = CoordinatorConfig(consumer_session_timeout_ms=SESSION_MS, consumer_heartbeat_interval_ms=1_000)
        self.broker = SimBroker(
            self.scheduler,
            Random(f"broker {self.seed}"),
            config,
            self.pushed if self.metrics_ms else None,
            self.metrics_ms,
        )
        self.broker.group_id = GROUP
        self.broker.create(TOPICS)
        self.nodes = SimNodes(
            self.scheduler, self.broker, Random(f"nodes {self.seed}"), self.counters, rng.choice((1, 2, 3)), 1_000
        )
        weather = (
            Weather() if self.is_calm else Weather(rng.choice(_WEATHER), rng.choice(_WEATHER), rng.choice((0.0, 0.05)))
        )
        self.network = SimNetwork(
            self.scheduler, self.nodes, Random(f"network {self.seed}"), weather, self.counters, 2_000
        )
        self.network.on_late = self._late.append
        self.broker.on_answer, self.broker.on_change = self._on_answer, self._check_owners
        first = rng.choice(("consumer", "classic"))
        self.readers = [
            Reader(
                self,
                f"r{number}",
                Random(f"reader {self.seed} {number}"),
                f"static-{number}" if rng.random() < 0.3 else None,
                rng.random() < 0.4,
                rng.random() < 0.3,
                first,
            )
            for number in range(rng.randint(2, 4))
        ]
        self.writer = SimProcess(self.scheduler, "writer", SpinDetector(lambda: 0, lambda: None))

    def log(self, who: str, what: str) -> None:
        """Add an event to the history."""
        self.history.append(self.scheduler.now_ms, who, what)

    # --- the run ----------------------------------------------------------------------------

    def run(self) -> str:
        """Run the world; return the digest of its events.

        Raises:
            InvariantViolationError: an invariant is violated.
        """
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            self._run()
        finally:
            for reader in self.readers:
                reader.crash()
            self.scheduler.run_until(self.scheduler.now_ms)
            self.writer.kill()
            logging.disable(before)
        return hashlib.sha256("\n".join(self.history.lines).encode()).hexdigest()[:16]

    def _run(self) -> None:
        scheduler = self.scheduler
        self.writer.spawn(self._write)
        for number, reader in enumerate(self.readers):
            scheduler.at(100 * number, reader.start)
        if not self.is_calm:
            self._draw()
        scheduler.run_until(STORM_MS)
        self.log("world", "the storm is over")
        self.network.weather.calm()
        self.network.cut_until_ms.clear()
        limit_ms = scheduler.now_ms + SETTLING_MS
        while not self.failures and (why := self._unfinished()):
            if scheduler.now_ms >= limit_ms:
                raise InvariantViolationError(f"{SETTLING_MS // 1000} s after the storm: {why}")
            scheduler.run_until(scheduler.now_ms + 200)
        if self.metrics_ms and not self.failures:
            # A request of the storm times out, one is throttled, and the first push after it may come late.
            since_ms = scheduler.clock.now_ms()
            scheduler.run_until(scheduler.now_ms + _REQUEST_MS + 4 * self.metrics_ms)
            self._check_pushed(since_ms)
        if self.failures:
            raise self.failures[0]

    def _draw(self) -> None:
        rng = self.rng
        for _ in range(rng.randint(4, 12)):
            kind = rng.choices(list(_FAULTS), list(_FAULTS.values()))[0]
            reader, lasts_ms = rng.choice(self.readers), rng.randint(50, 9_000)
            # A rolling migration, which may turn back: each start may use the other protocol.
            protocol = rng.choice(("consumer", "consumer", "classic"))
            at_ms = rng.randrange(500, STORM_MS - 500)
            self.scheduler.at(at_ms, lambda args=(kind, reader, lasts_ms, protocol): self._apply(*args))

    def _apply(self, kind: str, reader: Reader, lasts_ms: int, protocol: str) -> None:
        now_ms, scheduler = self.scheduler.now_ms, self.scheduler
        self.log("fault", f"{kind} {reader.name} {lasts_ms} {protocol}")
        self.faults[kind] += 1
        match kind:
            case "crash":
                reader.crash()
                reader.protocol = protocol
                scheduler.after(lasts_ms, reader.start)
            case "leave":
                reader.is_leaving, reader.protocol = True, protocol
            case "stall" if reader.process is not None:
                reader.process.stalled_until_ms = max(reader.process.stalled_until_ms, now_ms + lasts_ms)
            case "cut":
                self.network.cut_until_ms[reader.name] = now_ms + lasts_ms
            case "reset":
                self.network.reset(reader.name)
            case "silence":
                self.network.silence(reader.name)
            case "broker" | "host" if self.broker.is_up:
                self.broker.crash()
                self.network.server_died(is_silent=kind == "host")
                scheduler.after(lasts_ms // 2, self.broker.restart)
            case "coordinators":
                self.nodes.move_coordinators(now_ms + lasts_ms // 2)
            case "leaders":
                self.nodes.move_leaders(now_ms + lasts_ms // 2)
            case "partitions" if self.broker.is_up:
                topics = self.broker.machine.topics
                topics.add_partitions("read-b", len(topics.by_name["read-b"].logs) + 1)

    def _write(self) -> None:
        producer = Producer(
            self.network.cluster(self.writer),
            client_id="writer",
            request_timeout_ms=2_000,
            metadata_max_age_ms=2_000,
            delivery_timeout_ms=SETTLING_MS,
            background_sender=False,
            clock=self.scheduler.clock,
            threads=SimThreads(self.writer),
        )
        pause = SimThreads(self.writer).signal()
        topics = [Topic(name, key=bytes, value=bytes) for name in TOPICS]
        for number in range(RECORDS):
            producer.poll(0)
            pause.wait(STORM_MS // RECORDS)
            producer.send(topics[number % 2], b"%d" % number, key=b"%d" % number, timestamp_ms=number)
        producer.flush(SETTLING_MS)
        self._has_written = True

    # --- invariants -------------------------------------------------------------------------

    def read(self, reader: Reader, partition: TopicPartition, offset: int) -> None:
        """Note a record that a reader got, which no other reader may own that is certainly a member."""
        self.reads += 1
        self.read_times[reader.name].append(self.scheduler.clock.now_ms())
        self.seen[partition].add(offset)
        self.log(reader.name, f"reads {partition} {offset}")
        now_ms = self.scheduler.clock.monotonic_ms()
        self._check_membership(reader, partition)
        for one in self.readers:
            other = one.consumer
            if one is reader or other is None or partition not in other.assignment() or other.alive_until_ms <= now_ms:
                continue
            if reader.consumer is not None and reader.consumer.alive_until_ms > now_ms:
                self._fail(f"{partition} is read by {reader.name}, while {one.name} owns it")

    def _check_membership(self, reader: Reader, partition: TopicPartition) -> None:
        """A reader reads only what its listener was told that it has, and nothing while it is in no generation."""
        consumer, holdings = reader.consumer, reader.holdings
        if consumer is None or holdings is None:
            return
        if partition not in holdings.held:
            self._fail(f"{reader.name} reads {partition}, which it was not assigned")
        if consumer._session.member.generation_id < 0:
            self._fail(f"{reader.name} reads {partition}, though it was removed from the group")

    def _fail(self, what: str) -> None:
        self.failures.append(InvariantViolationError(f"{what}, at {self.scheduler.now_ms} ms"))

    def _check_owners(self) -> None:
        """No partition has two owners in the coordinator."""
        shell = self.broker.machine.coordinator.group(GROUP)
        if shell is None or shell.consumer is None:
            return
        owner: dict[object, str] = {}
        for member in shell.consumer.members.values():
            for place in member.owned:
                if (other := owner.setdefault(place, member.member_id)) != member.member_id:
                    self._fail(f"partition {place[1]} is with {other} and with {member.member_id}")

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
                self._fail(f"the commit of {partition} goes back to {offset} from {self.committed[partition]}")
            missing = set(range(offset)) - self.seen[partition]
            if missing:
                self._fail(f"{offset} of {partition} is committed, and nobody has read {sorted(missing)[:3]}")
            self.committed[partition] = offset
        shell = self.broker.machine.coordinator.group(GROUP)
        if ErrorCode.NONE in response.errors.values() and shell is not None and shell.consumer is not None:
            member = shell.consumer.members.get(request.member_id)
            if member is None or member.epoch != request.generation_id:
                self._fail(f"a commit of {request.member_id} in epoch {request.generation_id} was taken")

    def _check_pushed(self, since_ms: int) -> None:
        """Each client that reads pushes, under one ID, and what it pushes is what it has read, once."""
        for reader in self.readers:
            ids = self.pushed.ids[reader.name]
            if len(ids) > reader.starts:
                self._fail(f"{reader.name} has started {reader.starts} times, and pushes with {len(ids)} IDs")
            push = reader.consumer and reader.consumer._network.metrics_push
            # Whose first question for subscriptions is lost asks again after five minutes, as Java's clients do.
            is_waiting = push is not None and push.instance_id is None and not push.is_idle
            if not is_waiting and not any(self.pushed.instances[name].until_ms >= since_ms for name in ids):
                self._fail(f"{reader.name} has not pushed since {since_ms} ms")
        for total in self.pushed.instances.values():
            if problem := total.problem():
                self._fail(f"{total.client_id}: {problem}")
            times = self.read_times[total.client_id]
            before, after = (
                sum(low < at_ms < high for at_ms in times)
                for low, high in (
                    (total.started_ms, total.until_ms),
                    (total.started_ms - 1, total.until_ms + 1),
                )
            )
            if not before <= total.total <= after:
                self._fail(f"{total.client_id} has pushed {total.total} records, and read {before} to {after}")

    def _unfinished(self) -> str:
        """Return what is not settled yet, or an empty string."""
        if not self._has_written:
            return "not all is written"
        if not self.broker.is_up or any(reader.consumer is None for reader in self.readers):
            return "not everybody is up"
        owners: defaultdict[TopicPartition, list[str]] = defaultdict(list)
        for reader in self.readers:
            for partition in reader.consumer.assignment():
                owners[partition].append(reader.name)
        topics = self.broker.machine.topics
        for name in TOPICS:
            for number in range(len(topics.by_name[name].logs)):
                partition = TopicPartition(name, number)
                if len(owners[partition]) != 1:
                    return f"{partition} is with {owners[partition]}"
                end = topics.log(partition).high_watermark
                if missing := set(range(end)) - self.seen[partition]:
                    return f"{partition}: nobody has read {sorted(missing)[:5]} of {end}"
        shell = self.broker.machine.coordinator.group(GROUP)
        if shell is None:
            return "there is no group"
        if shell.consumer is not None:
            if shell.consumer.state != "Stable":
                return f"the group is {shell.consumer.state}"
            return "" if len(shell.consumer.members) == len(self.readers) else "the group has members that are gone"
        return "" if shell.state is GroupState.STABLE else f"the group is {shell.state}"
