"""Worlds of share consumers (KIP-932): one share group in a storm, on virtual time."""

import hashlib
import logging
from collections import defaultdict
from random import Random

from attrs import define, field

from streams.clients import AcknowledgeType, Producer, ShareConsumer
from streams.core.errors import BrokerError
from streams.core.records import TopicPartition
from streams.core.topic import Topic
from streams.group import CoordinatorConfig
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import FINAL_EPOCH
from streams.protocol.request import Request, Response
from streams.protocol.share_group_messages import (
    ShareAcknowledge,
    ShareAcknowledgeResponse,
    ShareFetch,
    ShareFetchResponse,
    TopicIdPartition,
)
from streams.testing.simulation.brokers import SimBroker
from streams.testing.simulation.cluster import SimNodes
from streams.testing.simulation.network import SimNetwork, Weather
from streams.testing.simulation.report import Counters, EventLog, InvariantViolationError
from streams.testing.simulation.scheduler import Scheduler, SimProcess, SimThreads, SpinDetector

GROUP = "sharers"
TOPICS = {"share-a": 2, "share-b": 1}
SESSION_MS = 6_000
LOCK_MS = 3_000
LIMIT = 5
STORM_MS = 20_000
#: Virtual time after the storm within which every record must be accepted or given up.
SETTLING_MS = 120_000
RECORDS = 120
_WEATHER = (0.0, 0.002, 0.01)
#: Kinds of faults with their weights.
_FAULTS = {
    "crash": 6,
    "leave": 4,
    "stall": 4,
    "cut": 3,
    "reset": 3,
    "silence": 2,
    "broker": 3,
    "host": 1,
    "coordinators": 2,
    "leaders": 3,
}


@define(eq=False)
class Sharer:
    """A machine with a share consumer, which is started again."""

    world: "ShareWorld"
    name: str
    rng: Random
    is_explicit: bool
    is_limited: bool
    process: SimProcess | None = None
    consumer: ShareConsumer | None = None
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
        self.world.log(self.name, "starts")
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
        world, rng = self.world, self.rng
        consumer = ShareConsumer(
            world.network.cluster(process),
            GROUP,
            clock=world.scheduler.clock,
            threads=SimThreads(process),
            client_id=self.name,
            share_acknowledgement_mode="explicit" if self.is_explicit else "implicit",
            share_acquire_mode="record_limit" if self.is_limited else "batch_optimized",
            max_poll_records=5,
            max_poll_interval_ms=15_000,
            request_timeout_ms=2_000,
            default_api_timeout_ms=4_000,
            metadata_max_age_ms=2_000,
        )
        # The assignor of the broker goes by the member ids, which must not be random.
        consumer._membership.member.member_id = f"{self.name}-{self.starts}"
        self.consumer = consumer
        consumer.set_acknowledgement_commit_callback(world.told)
        consumer.subscribe(sorted(TOPICS))
        pause = SimThreads(process).signal()
        while not self.is_leaving:
            for record in consumer.poll(300):
                world.reads += 1
                place = TopicPartition(record.topic, record.partition)
                world.log(self.name, f"gets {place} {record.offset} delivery {record.delivery_count}")
                if self.is_explicit:
                    kind = rng.choices(list(AcknowledgeType), (90, 5, 2, 3))[0]
                    consumer.acknowledge(record, kind)
            if rng.random() < 0.1:
                # Slow work: sometimes longer than the locks last.
                pause.wait(rng.randint(1, 2 * LOCK_MS))
            if rng.random() < 0.3:
                for error in consumer.commit_sync().values():
                    world.refused["none" if error is None else error.code.name] += 1
        self.consumer = None
        consumer.close(3_000)
        world.log(self.name, "has closed")


@define(eq=False)
class ShareWorld:
    """One share group, which ``run`` takes through the storm of a seed."""

    seed: int
    is_calm: bool = False
    scheduler: Scheduler = field(factory=Scheduler)
    counters: Counters = field(factory=Counters)
    history: EventLog = field(factory=EventLog)
    failures: list[Exception] = field(factory=list)
    reads: int = 0
    refused: defaultdict[str, int] = field(factory=lambda: defaultdict(int))
    ended: defaultdict[str, int] = field(factory=lambda: defaultdict(int))
    faults: defaultdict[str, int] = field(factory=lambda: defaultdict(int))
    #: The member that has locked a record, and until when, by partition and offset.
    locks: dict[tuple[TopicIdPartition, int], tuple[str, int]] = field(factory=dict)
    deliveries: dict[tuple[TopicIdPartition, int], int] = field(factory=dict)
    #: Records that were accepted or rejected.
    done: dict[tuple[TopicIdPartition, int], int] = field(factory=dict)
    #: Holders of locked records that went to another member, and what to say if their sessions have not ended.
    suspects: list[tuple[str, str]] = field(factory=list)
    #: How many acknowledgements came after somebody else's.
    late: int = 0
    _has_written: bool = False
    rng: Random = field(init=False)
    broker: SimBroker = field(init=False)
    nodes: SimNodes = field(init=False)
    network: SimNetwork = field(init=False)
    sharers: list[Sharer] = field(init=False)
    writer: SimProcess = field(init=False)

    def __attrs_post_init__(self) -> None:
        rng = self.rng = Random(f"shares {self.seed}")
        config = CoordinatorConfig(
            share_session_timeout_ms=SESSION_MS,
            share_heartbeat_interval_ms=1_000,
            share_record_lock_duration_ms=LOCK_MS,
            share_delivery_count_limit=LIMIT,
        )
        self.broker = SimBroker(self.scheduler, Random(f"broker {self.seed}"), config)
        self.broker.group_id = GROUP
        self.broker.create(TOPICS)
        # All brokers share one state machine, in which a member has one share session.
        self.nodes = SimNodes(self.scheduler, self.broker, Random(f"nodes {self.seed}"), self.counters, 1, 1_000)
        weather = (
            Weather() if self.is_calm else Weather(rng.choice(_WEATHER), rng.choice(_WEATHER), rng.choice((0.0, 0.05)))
        )
        self.network = SimNetwork(
            self.scheduler, self.nodes, Random(f"network {self.seed}"), weather, self.counters, 2_000
        )
        self.broker.on_answer, self.broker.on_change = self._on_answer, self._check_suspects
        self.sharers = [
            Sharer(self, f"s{n}", Random(f"sharer {self.seed} {n}"), rng.random() < 0.6, rng.random() < 0.4)
            for n in range(rng.randint(2, 4))
        ]
        self.writer = SimProcess(self.scheduler, "writer", SpinDetector(lambda: 0, lambda: None))

    def log(self, who: str, what: str) -> None:
        """Add an event to the history."""
        self.history.append(self.scheduler.now_ms, who, what)

    def told(self, offsets: object, error: BrokerError | None) -> None:
        """Note what a consumer is told of its acknowledgements."""
        self.log("told", f"{offsets} {None if error is None else error.code}")

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
            for sharer in self.sharers:
                sharer.crash()
            self.scheduler.run_until(self.scheduler.now_ms)
            self.writer.kill()
            logging.disable(before)
        return hashlib.sha256("\n".join(self.history.lines).encode()).hexdigest()[:16]

    def _run(self) -> None:
        scheduler = self.scheduler
        self.broker.machine.coordinator.configs.alter(GROUP, {"share.auto.offset.reset": "earliest"})
        self.writer.spawn(self._write)
        for number, sharer in enumerate(self.sharers):
            scheduler.at(100 * number, sharer.start)
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
        if self.failures:
            raise self.failures[0]

    def _draw(self) -> None:
        rng = self.rng
        for _ in range(rng.randint(4, 12)):
            kind = rng.choices(list(_FAULTS), list(_FAULTS.values()))[0]
            sharer, lasts_ms = rng.choice(self.sharers), rng.randint(50, 9_000)
            at_ms = rng.randrange(500, STORM_MS - 500)
            self.scheduler.at(at_ms, lambda args=(kind, sharer, lasts_ms): self._apply(*args))

    def _apply(self, kind: str, sharer: Sharer, lasts_ms: int) -> None:
        now_ms, scheduler = self.scheduler.now_ms, self.scheduler
        self.log("fault", f"{kind} {sharer.name} {lasts_ms}")
        self.faults[kind] += 1
        match kind:
            case "crash":
                sharer.crash()
                scheduler.after(lasts_ms, sharer.start)
            case "leave":
                sharer.is_leaving = True
            case "stall" if sharer.process is not None:
                sharer.process.stalled_until_ms = max(sharer.process.stalled_until_ms, now_ms + lasts_ms)
            case "cut":
                self.network.cut_until_ms[sharer.name] = now_ms + lasts_ms
            case "reset":
                self.network.reset(sharer.name)
            case "silence":
                self.network.silence(sharer.name)
            case "broker" | "host" if self.broker.is_up:
                self.broker.crash()
                # Locks are not stored.
                self.locks.clear()
                self.network.server_died(is_silent=kind == "host")
                scheduler.after(lasts_ms // 2, self.broker.restart)
            case "coordinators":
                self.nodes.move_coordinators(now_ms + lasts_ms // 2)
            case "leaders":
                self.nodes.move_leaders(now_ms + lasts_ms // 2)

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

    def _on_answer(self, request: Request, response: Response | Exception) -> None:
        """No record has two holders, and none is accepted twice or by somebody who does not hold it."""
        match request, response:
            case ShareFetch(), ShareFetchResponse(error=ErrorCode.NONE):
                errors = {place: found.acknowledge_error for place, found in response.partitions.items()}
                self._acknowledged(request, errors)
                self._ended(request)
                for place, found in response.partitions.items():
                    for acquired in found.acquired:
                        for offset in range(acquired.first_offset, acquired.last_offset + 1):
                            self._locked((place, offset), request.member_id, acquired.delivery_count)
            case ShareAcknowledge(), ShareAcknowledgeResponse(error=ErrorCode.NONE):
                self._acknowledged(request, {place: code for place, (code, _) in response.errors.items()})
                self._ended(request)

    def _locked(self, record: tuple[TopicIdPartition, int], member_id: str, count: int) -> None:
        now_ms = self.scheduler.now_ms
        holder, until_ms = self.locks.get(record, ("", 0))
        if until_ms > now_ms:
            self.suspects.append((holder, f"{_shown(record)} goes to {member_id}, while {holder} holds it"))
        if record in self.done:
            self._fail(f"{_shown(record)} goes to {member_id}, after it was done")
        if count > LIMIT:
            self._fail(f"{_shown(record)} is delivered {count} times")
        self.locks[record] = member_id, now_ms + LOCK_MS
        self.deliveries[record] = count

    def _acknowledged(self, request: ShareFetch | ShareAcknowledge, errors: dict[TopicIdPartition, ErrorCode]) -> None:
        now_ms, member_id = self.scheduler.now_ms, request.member_id
        is_final = request.session_epoch == FINAL_EPOCH
        for place, batches in request.partitions.items():
            if not batches or errors.get(place) is not ErrorCode.NONE:
                continue
            for first, last, types in batches:
                for number, offset in enumerate(range(first, last + 1)):
                    record, kind = (place, offset), types[0] if len(types) == 1 else types[number]
                    if record in self.done or (self.deliveries.get(record) == LIMIT and not self._is_held(record)):
                        # What is below the start offset is done or given up, and what is said of it is taken.
                        self.late += 1
                        continue
                    if is_final and kind in (AcknowledgeType.RELEASE, AcknowledgeType.RENEW):
                        # The end of the session has released them, perhaps to others in the same event.
                        continue
                    holder, until_ms = self.locks.pop(record, ("", 0))
                    if holder != member_id or until_ms < now_ms:
                        self._fail(f"{member_id} says {kind} of {_shown(record)}, which {holder or 'nobody'} holds")
                    if kind == AcknowledgeType.RENEW:
                        self.locks[record] = member_id, now_ms + LOCK_MS
                    elif kind != AcknowledgeType.RELEASE:
                        self.done[record] = kind

    def _ended(self, request: ShareFetch | ShareAcknowledge) -> None:
        """Forget the locks of a session that has ended; what they held may have gone to others in the same event."""
        if request.session_epoch == FINAL_EPOCH:
            self.locks = {record: lock for record, lock in self.locks.items() if lock[0] != request.member_id}
            self.suspects = [one for one in self.suspects if one[0] != request.member_id]

    def _check_suspects(self) -> None:
        for _, what in self.suspects:
            self._fail(what)

    def _fail(self, what: str) -> None:
        self.failures.append(InvariantViolationError(f"{what}, at {self.scheduler.now_ms} ms"))

    def _unfinished(self) -> str:
        """Return what is not settled yet, or an empty string."""
        if not self._has_written:
            return "not all is written"
        if not self.broker.is_up or any(sharer.consumer is None for sharer in self.sharers):
            return "not everybody is up"
        topics = self.broker.machine.topics
        for name in TOPICS:
            topic = topics.by_name[name]
            for number in range(len(topic.logs)):
                place = TopicIdPartition(topic.topic_id, number)
                end = topics.log(TopicPartition(name, number)).high_watermark
                for offset in range(end):
                    record = place, offset
                    if record not in self.done and (self.deliveries.get(record, 0) < LIMIT or self._is_held(record)):
                        return f"{name}-{number} at {offset} is neither accepted nor given up"
        shell = self.broker.machine.coordinator.group(GROUP)
        if shell is None or shell.share is None:
            return "there is no share group"
        return "" if len(shell.share.members) == len(self.sharers) else "the group has members that are gone"

    def _is_held(self, record: tuple[TopicIdPartition, int]) -> bool:
        return self.locks.get(record, ("", 0))[1] > self.scheduler.now_ms


def _shown(record: tuple[TopicIdPartition, int]) -> str:
    return f"partition {record[0].partition} at {record[1]}"
