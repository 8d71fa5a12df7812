"""The brokers of a simulated cluster, whose leaders and coordinators move, and whose metadata may be stale.

The brokers share one state machine (``brokers``).  This module rejects the requests that a Kafka broker would reject:
those for partitions that the broker does not lead or that are not in its metadata yet, for groups and transactions that
it does not coordinate, and for transactions whose markers are being written.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final
from zlib import crc32

from attrs import define, evolve, field

from streams.broker import refusal
from streams.core.blocks.records import TopicPartition
from streams.protocol.admin_messages import ApiVersionsResponse
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    ConsumerGroupHeartbeat,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
)
from streams.protocol.messages import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    DeletedRecords,
    DeleteRecords,
    DeleteRecordsResponse,
    EndTxn,
    EndTxnResponse,
    Fetch,
    FetchedPartition,
    FetchResponse,
    FindCoordinator,
    FindCoordinatorResponse,
    InitProducerId,
    ListedOffset,
    ListOffsets,
    ListOffsetsResponse,
    MetadataResponse,
    Produce,
    Produced,
    ProduceResponse,
    TopicMetadata,
    TxnOffsetCommit,
)
from streams.protocol.request import Request, Response
from streams.protocol.streams_group_messages import StreamsGroupHeartbeat
from streams.testing.simulation.brokers import SimBroker
from streams.testing.simulation.report import Counters
from streams.testing.simulation.scheduler import Scheduler

_GROUP_REQUESTS: Final = (
    JoinGroup,
    SyncGroup,
    Heartbeat,
    LeaveGroup,
    ConsumerGroupHeartbeat,
    StreamsGroupHeartbeat,
    OffsetCommit,
    OffsetFetch,
    TxnOffsetCommit,
)
_TRANSACTION_REQUESTS: Final = (InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn)
#: For each request about partitions: its field with the partitions, its response, and the result of one partition.
_PARTITION_REQUESTS: Final[Mapping[type, tuple[str, Callable[..., Response], Callable[[ErrorCode], Any]]]] = {
    Produce: ("blocks", ProduceResponse, Produced),
    Fetch: ("positions", FetchResponse, lambda code: FetchedPartition(code, -1, -1)),
    ListOffsets: ("timestamps", ListOffsetsResponse, ListedOffset),
    DeleteRecords: ("offsets", DeleteRecordsResponse, lambda code: DeletedRecords(code, -1)),
}


@define
class _Move:
    """The number of times that all leaders or coordinators moved to the next broker, and when the last move ends."""

    count: int = 0
    until_ms: int = 0


@define(eq=False)
class SimNodes:
    """The brokers of a simulated cluster, numbered from 0; implements ``network.Server``."""

    scheduler: Scheduler
    broker: SimBroker
    rng: Random
    counters: Counters
    #: The number of brokers.
    count: int = 1
    #: Maximum time in milliseconds until a new topic or partition is in the metadata of a broker.
    lag_ms: int = 0
    #: Maximum time in milliseconds for which the markers of an ended transaction are being written.
    markers_ms: int = 0
    #: Whether the cluster has finalized transactions of version 2 (KIP-890).
    has_second_version: bool = True
    #: The most records of a partition in a fetch response; None for what the client allows.
    fetched_records: int | None = None
    _addresses: Sequence[str] = field(init=False)
    #: The moves of all leaders, and of all coordinators.
    _leaders: _Move = field(factory=_Move)
    _coordinators: _Move = field(factory=_Move)
    #: The partition counts of each topic over time, with the times from which each broker's metadata has them.
    _sizes: dict[str, list[tuple[int, tuple[int, ...]]]] = field(factory=dict)
    #: Virtual time until which the markers of a transactional id are being written.
    _marking_until_ms: dict[str, int] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self._addresses = [f"broker-{node}:9092" for node in range(self.count)]
        topics = self.broker.machine.topics.by_name
        self._sizes = {name: [(len(topic.logs), (0,) * self.count)] for name, topic in topics.items()}

    @property
    def is_up(self) -> bool:
        return self.broker.is_up

    @property
    def addresses(self) -> Sequence[str]:
        return self._addresses

    # --- faults ---------------------------------------------------------------------------

    def move_leaders(self, until_ms: int) -> None:
        """Move the leadership of all partitions to the next broker; there is no leader until the given virtual time."""
        self._leaders = _Move(self._leaders.count + 1, until_ms)
        self.counters.leader_moves += 1

    def move_coordinators(self, until_ms: int) -> None:
        """Move all coordinators to the next broker, which loads their state until the given virtual time."""
        self._coordinators = _Move(self._coordinators.count + 1, until_ms)
        self.counters.coordinator_moves += 1

    # --- requests -------------------------------------------------------------------------

    def serve(self, node: int, request: Request, answer: Callable[[Response | Exception], None]) -> None:
        """Handle a request at a broker; ``answer`` is called once, now or later, or never if the brokers crash."""
        refused = self._refusal(node, request)
        if refused is not None:
            self.counters.refusals += 1
            answer(refused)
            return

        def reply(response: Response | Exception) -> None:
            match request, response:
                case _, MetadataResponse():
                    response = self._described(node, response)
                case _, ApiVersionsResponse() if not self.has_second_version:
                    response = evolve(response, finalized_features={})
                case FindCoordinator(), FindCoordinatorResponse(error=ErrorCode.NONE):
                    response = self._coordinator_of(request)
                case EndTxn(), EndTxnResponse(error=ErrorCode.NONE) if self.markers_ms:
                    until_ms = self.scheduler.now_ms + self.rng.randint(0, self.markers_ms)
                    self._marking_until_ms[request.transactional_id] = until_ms
            answer(response)

        if isinstance(request, Fetch) and self.fetched_records is not None:
            request = evolve(request, max_records=min(request.max_records, self.fetched_records))
        self.broker.serve(request, reply)

    def _refusal(self, node: int, request: Any) -> Response | None:
        """Return the error response with which a broker rejects a request, or None if it accepts it."""
        kind = type(request)
        if kind in _PARTITION_REQUESTS:
            name, response, result = _PARTITION_REQUESTS[kind]
            if isinstance(request, Produce) and request.adds_partitions and request.transactional_id is not None:
                code = self._error_of_adding(request.transactional_id)
                if code is not None:
                    return ProduceResponse({partition: Produced(code) for partition in request.blocks})
            partitions = set(getattr(request, name))
            if isinstance(request, Fetch) and request.session_epoch > 0:
                # A leader that has moved ends the session: its partitions have an error, and it is not continued.
                read = self.broker.machine.fetch_sessions.partitions_of(request.session_id)
                partitions = (partitions | read) - set(request.forgotten)
            # What is drawn for a topic must not depend on the order of a set.
            ordered = sorted(partitions)
            code = self._error_of_partitions(node, ordered)
            return None if code is None else response(dict.fromkeys(ordered, result(code)))
        if kind in _GROUP_REQUESTS:
            code = self._error_of_coordinator(node, request.group_id)
            return None if code is None else refusal(request, code)
        if kind in _TRANSACTION_REQUESTS and request.transactional_id is not None:
            code = self._error_of_coordinator(node, request.transactional_id)
            if code is None and self.scheduler.now_ms < self._marking_until_ms.get(request.transactional_id, 0):
                code = ErrorCode.CONCURRENT_TRANSACTIONS
            return None if code is None else refusal(request, code)
        return None

    # --- leaders --------------------------------------------------------------------------

    def _leader(self, partition: TopicPartition) -> int:
        return (crc32(partition.topic.encode()) + partition.partition + self._leaders.count) % self.count

    @property
    def _is_electing(self) -> bool:
        return self.scheduler.now_ms < self._leaders.until_ms

    def _error_of_partitions(self, node: int, partitions: Iterable[TopicPartition]) -> ErrorCode | None:
        for partition in partitions:
            if not self._knows(node, partition):
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if self._leader(partition) != node or self._is_electing:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return None

    def _knows(self, node: int, partition: TopicPartition) -> bool:
        """Return whether a broker knows a partition; True for a missing one, which the state machine rejects."""
        is_there = partition in self.broker.machine.topics.logs
        return not is_there or partition.partition < self._known_size(node, partition.topic)

    def _known_size(self, node: int, topic: str) -> int:
        """Return the partition count of an existing topic in the metadata of a broker."""
        sizes = self._sizes.setdefault(topic, [])
        size = len(self.broker.machine.topics.by_name[topic].logs)
        now_ms = self.scheduler.now_ms
        if not sizes or sizes[-1][0] != size:
            sizes.append((size, tuple(now_ms + self.rng.randint(0, self.lag_ms) for _ in range(self.count))))
        return max((count for count, since_ms in sizes if now_ms >= since_ms[node]), default=0)

    def _described(self, node: int, response: MetadataResponse) -> MetadataResponse:
        """Return the metadata response of one broker: with leaders, without partitions that it does not know yet."""
        topics = [self._seen(node, topic) for topic in sorted(response.topics, key=lambda topic: topic.name)]
        return MetadataResponse(dict(enumerate(self._addresses)), topics, 0)

    def _seen(self, node: int, topic: TopicMetadata) -> TopicMetadata:
        if topic.error is not ErrorCode.NONE:
            return topic
        size = self._known_size(node, topic.name)
        if not size:
            return TopicMetadata(topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        leaders = [self._leader(TopicPartition(topic.name, number)) for number in range(size)]
        if self._is_electing:
            # The stale metadata has the old leaders, or there is no leader.
            leaders = [(leader - 1) % self.count for leader in leaders] if self.rng.random() < 0.5 else [-1] * size
        return evolve(topic, leaders=tuple(leaders))

    # --- coordinators ---------------------------------------------------------------------

    def _coordinator(self, key: str) -> int:
        return (crc32(key.encode()) + self._coordinators.count) % self.count

    def _error_of_coordinator(self, node: int, key: str) -> ErrorCode | None:
        if self._coordinator(key) != node:
            return ErrorCode.NOT_COORDINATOR
        is_loading = self.scheduler.now_ms < self._coordinators.until_ms
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else None

    def _error_of_adding(self, transactional_id: str) -> ErrorCode | None:
        """Return why a leader cannot add partitions at the coordinator of a transaction now, or None if it can."""
        if self.scheduler.now_ms < self._coordinators.until_ms:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        is_marking = self.scheduler.now_ms < self._marking_until_ms.get(transactional_id, 0)
        return ErrorCode.CONCURRENT_TRANSACTIONS if is_marking else None

    def _coordinator_of(self, request: FindCoordinator) -> FindCoordinatorResponse:
        node = self._coordinator(request.key)
        if self.scheduler.now_ms < self._coordinators.until_ms:
            # The response has the new coordinator or the old one, or the coordinator is not available.
            drawn = self.rng.random()
            if drawn < 0.3:
                return FindCoordinatorResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
            node = (node - 1) % self.count if drawn < 0.6 else node
        return FindCoordinatorResponse(ErrorCode.NONE, node)
