"""Worlds of share consumers (KIP-932): one share group in a storm, on virtual time."""

from collections import defaultdict
from random import Random

from attrs import define, field

from streams.clients import AcknowledgeType, ShareConsumer
from streams.core.errors import BrokerError
from streams.core.records import TopicPartition
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
from streams.testing.simulation.scheduler import SimProcess, SimThreads
from tests.testing.simulation.storm import REQUEST_MS, Site, Storm

GROUP = "sharers"
TOPICS = {"share-a": 2, "share-b": 1}
SESSION_MS = 6_000
LOCK_MS = 3_000
LIMIT = 5
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
    site: Site[ShareConsumer] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.site = Site(self.world.storm, self.name, self._read)

    def _read(self, process: SimProcess) -> None:
        world, storm, site, rng = self.world, self.world.storm, self.site, self.rng
        consumer = ShareConsumer(
            storm.network.cluster(process),
            GROUP,
            clock=storm.scheduler.clock,
            threads=SimThreads(process),
            client_id=self.name,
            share_acknowledgement_mode="explicit" if self.is_explicit else "implicit",
            share_acquire_mode="record_limit" if self.is_limited else "batch_optimized",
            max_poll_records=5,
            max_poll_interval_ms=15_000,
            request_timeout_ms=REQUEST_MS,
            default_api_timeout_ms=4_000,
            metadata_max_age_ms=2_000,
        )
        # The assignor of the broker goes by the member ids, which must not be random.
        consumer._membership.member.member_id = f"{self.name}-{site.starts}"
        site.client = consumer
        consumer.set_acknowledgement_commit_callback(world.told)
        consumer.subscribe(sorted(TOPICS))
        pause = SimThreads(process).signal()
        while not site.is_leaving:
            for record in consumer.poll(300):
                storm.reads += 1
                place = TopicPartition(record.topic, record.partition)
                storm.log(self.name, f"gets {place} {record.offset} delivery {record.delivery_count}")
                if self.is_explicit:
                    kind = rng.choices(list(AcknowledgeType), (90, 5, 2, 3))[0]
                    consumer.acknowledge(record, kind)
            if rng.random() < 0.1:
                # Slow work: sometimes longer than the locks last.
                pause.wait(rng.randint(1, 2 * LOCK_MS))
            if rng.random() < 0.3:
                for error in consumer.commit_sync().values():
                    world.refused["none" if error is None else error.code.name] += 1
        site.client = None
        consumer.close(3_000)
        storm.log(self.name, "has closed")


@define(eq=False)
class ShareWorld:
    """One share group, which ``run`` takes through the storm of a seed."""

    seed: int
    is_calm: bool = False
    refused: defaultdict[str, int] = field(factory=lambda: defaultdict(int))
    #: The member that has locked a record, and until when, by partition and offset.
    locks: dict[tuple[TopicIdPartition, int], tuple[str, int]] = field(factory=dict)
    deliveries: dict[tuple[TopicIdPartition, int], int] = field(factory=dict)
    #: Records that were accepted or rejected.
    done: dict[tuple[TopicIdPartition, int], int] = field(factory=dict)
    #: Holders of locked records that went to another member, and what to say if their sessions have not ended.
    suspects: list[tuple[str, str]] = field(factory=list)
    #: How many acknowledgements came after somebody else's.
    late: int = 0
    storm: Storm = field(init=False)
    sharers: list[Sharer] = field(init=False)

    def __attrs_post_init__(self) -> None:
        rng = Random(f"shares {self.seed}")
        config = CoordinatorConfig(
            share_session_timeout_ms=SESSION_MS,
            share_heartbeat_interval_ms=1_000,
            share_record_lock_duration_ms=LOCK_MS,
            share_delivery_count_limit=LIMIT,
        )
        # All brokers share one state machine, in which a member has one share session.
        self.storm = Storm(self.seed, rng, GROUP, TOPICS, config, _FAULTS, self.is_calm)
        # Locks are not stored.
        self.storm.on_crash = lambda: self.locks.clear()
        broker = self.storm.broker
        broker.on_answer, broker.on_change = self._on_answer, self._check_suspects
        self.sharers = [
            Sharer(self, f"s{n}", Random(f"sharer {self.seed} {n}"), rng.random() < 0.6, rng.random() < 0.4)
            for n in range(rng.randint(2, 4))
        ]
        self.storm.sites = [sharer.site for sharer in self.sharers]

    def told(self, offsets: object, error: BrokerError | None) -> None:
        """Note what a consumer is told of its acknowledgements."""
        self.storm.log("told", f"{offsets} {None if error is None else error.code}")

    def run(self) -> str:
        """Run the world; return the digest of its events.

        Raises:
            InvariantViolationError: an invariant is violated.
        """
        self.storm.broker.machine.coordinator.configs.alter(GROUP, {"share.auto.offset.reset": "earliest"})
        return self.storm.run(self._unfinished)

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
        now_ms = self.storm.scheduler.now_ms
        holder, until_ms = self.locks.get(record, ("", 0))
        if until_ms > now_ms:
            self.suspects.append((holder, f"{_shown(record)} goes to {member_id}, while {holder} holds it"))
        if record in self.done:
            self.storm.fail(f"{_shown(record)} goes to {member_id}, after it was done")
        if count > LIMIT:
            self.storm.fail(f"{_shown(record)} is delivered {count} times")
        self.locks[record] = member_id, now_ms + LOCK_MS
        self.deliveries[record] = count

    def _acknowledged(self, request: ShareFetch | ShareAcknowledge, errors: dict[TopicIdPartition, ErrorCode]) -> None:
        now_ms, member_id = self.storm.scheduler.now_ms, request.member_id
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
                        self.storm.fail(
                            f"{member_id} says {kind} of {_shown(record)}, which {holder or 'nobody'} holds"
                        )
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
            self.storm.fail(what)

    def _unfinished(self) -> str:
        """Return what is not settled yet, or an empty string."""
        topics = self.storm.broker.machine.topics
        for name in TOPICS:
            topic = topics.by_name[name]
            for number in range(len(topic.logs)):
                place = TopicIdPartition(topic.topic_id, number)
                end = topics.log(TopicPartition(name, number)).high_watermark
                for offset in range(end):
                    record = place, offset
                    if record not in self.done and (self.deliveries.get(record, 0) < LIMIT or self._is_held(record)):
                        return f"{name}-{number} at {offset} is neither accepted nor given up"
        shell = self.storm.broker.machine.coordinator.group(GROUP)
        if shell is None or shell.share is None:
            return "there is no share group"
        return "" if len(shell.share.members) == len(self.sharers) else "the group has members that are gone"

    def _is_held(self, record: tuple[TopicIdPartition, int]) -> bool:
        return self.locks.get(record, ("", 0))[1] > self.storm.scheduler.now_ms


def _shown(record: tuple[TopicIdPartition, int]) -> str:
    return f"partition {record[0].partition} at {record[1]}"
