"""Share groups (KIP-932) on the embedded broker: what members get, what becomes of it, what is left after a restart.

``Shared`` compares the broker with a model of one record at a time.
"""

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from attrs import define, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streams.broker import ArrayStorage, EmbeddedBroker
from streams.broker.config import parse_config
from streams.broker.driver import LocalConnection
from streams.broker.log import PartitionLog
from streams.broker.shares import SHARES_PARTITION, ShareStore
from streams.broker.shares.state_log import UPDATES_PER_SNAPSHOT, ShareKey
from streams.clients import Admin, Producer
from streams.core.clock import VirtualClock
from streams.core.records import Block, TopicPartition
from streams.group import CoordinatorConfig
from streams.protocol.admin_messages import (
    ChangedConfigs,
    ConfigChange,
    ConfigOperation,
    IncrementalAlterConfigs,
    ResourceType,
)
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import DeleteGroup, JoinGroup, ListGroups
from streams.protocol.share_group_messages import (
    AcknowledgementBatch,
    AlterShareGroupOffsets,
    DeleteShareGroupOffsets,
    DescribeShareGroupOffsets,
    ShareAcknowledge,
    SharedOffset,
    ShareFetch,
    ShareGroupDescribe,
    ShareGroupHeartbeat,
    TopicIdPartition,
)

GROUP, TOPIC = "workers", "work"
PARTITION = TopicPartition(TOPIC, 0)
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
LOCK_MS, LIMIT = 1_000, 3


@define(eq=False)
class Node:
    """A broker on a folder and virtual time, with what its members know of their sessions."""

    folder: Path | None = None
    clock: VirtualClock = field(factory=VirtualClock)
    given: dict[str, str] = field(factory=lambda: {"share.auto.offset.reset": "earliest"})
    epochs: dict[str, int] = field(factory=dict)
    broker: EmbeddedBroker = field(init=False)
    connection: LocalConnection = field(init=False)
    late: list = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.start()
        self.broker.create_topic(TOPIC, 1)
        self.configure(self.given)

    def start(self) -> None:
        """Open the broker."""
        config = CoordinatorConfig(share_record_lock_duration_ms=LOCK_MS, share_delivery_count_limit=LIMIT)
        self.broker = EmbeddedBroker(self.folder, clock=self.clock, group_config=config)
        self.connection = self.broker.connect("test")

    def send(self, request):
        """Send a request; return the response, or None if it must wait."""
        asked = self.connection.send(0, request)
        answers = dict(self.connection.poll(0))
        found = answers.pop(asked, None)
        self.late += answers.values()
        return found

    def came(self):
        """Return the response to the request that has waited."""
        self.late += [answer for _, answer in self.connection.poll(0)]
        return self.late.pop()

    def configure(self, given: dict[str, str]) -> None:
        """Set settings of the group."""
        changes = tuple(ConfigChange(name, ConfigOperation.SET, value) for name, value in given.items())
        altered = ChangedConfigs(ResourceType.GROUP, GROUP, changes)
        (result,) = self.send(IncrementalAlterConfigs((altered,))).responses
        assert result.error is ErrorCode.NONE, result

    def join(self, member: str) -> None:
        """Have a member join the group."""
        found = self.send(ShareGroupHeartbeat(GROUP, member, 0, topics=(TOPIC,)))
        assert found.error is ErrorCode.NONE, found
        self.epochs[member] = 0

    def write(self, *values: bytes) -> None:
        """Write records."""
        self.broker.append(PARTITION, Block([None] * len(values), list(values), [0] * len(values)))

    @property
    def place(self) -> TopicIdPartition:
        """The partition by topic ID."""
        return TopicIdPartition(self.broker.describe_topic(TOPIC).topic_id, 0)

    def fetch(self, member: str, records: int = 500, *, wait_ms: int = 0, batches=(), min_bytes: int = 1):
        """Fetch records, with acknowledgements; return the response, or None if it waits."""
        epoch = self.epochs[member]
        self.epochs[member] = epoch + 1
        limits = (wait_ms, min_bytes, 1 << 20, records, 500)
        return self.send(ShareFetch(GROUP, member, epoch, *limits, partitions={self.place: batches}))

    def got(self, member: str, records: int = 500) -> list[tuple[int, int]]:
        """Fetch records; return (offset, delivery count) of each."""
        return counted(self.fetch(member, records))

    def acknowledge(self, member: str, *batches: tuple[int, int, tuple[int, ...]]) -> ErrorCode:
        """Acknowledge records; return the error code."""
        epoch = self.epochs[member]
        self.epochs[member] = epoch + 1
        given = tuple(AcknowledgementBatch(*batch) for batch in batches)
        is_renewal = any(RENEW in types for _, _, types in batches)
        found = self.send(ShareAcknowledge(GROUP, member, epoch, is_renewal, {self.place: given}))
        assert found.error is ErrorCode.NONE, found
        return found.errors[self.place][0]

    def offset(self) -> SharedOffset:
        """Where the group is."""
        found = self.send(DescribeShareGroupOffsets(GROUP))
        assert found.error is ErrorCode.NONE
        return found.offsets[PARTITION]


def counted(response) -> list[tuple[int, int]]:
    """(offset, delivery count) of each record of a response, which has these records and no others."""
    found: list[tuple[int, int]] = []
    assert response.error is ErrorCode.NONE, response
    for row in response.partitions.values():
        assert row.error is ErrorCode.NONE, row
        ranges = [(offset, count) for first, last, count in row.acquired for offset in range(first, last + 1)]
        assert [offset for block in row.blocks for offset in block.offsets] == [offset for offset, _ in ranges]
        found += ranges
    return found


@pytest.fixture
def node() -> Iterator[Node]:
    """A broker with members ``one`` and ``two``, and four records."""
    found = Node()
    found.join("one")
    found.join("two")
    found.write(b"a", b"b", b"c", b"d")
    yield found
    found.broker.close()


# --- properties ---------------------------------------------------------------------------


@define
class Record:
    """A record in the model."""

    state: str = "available"
    count: int = 0
    member: str = ""
    until_ms: int = 0


class Shared(RuleBasedStateMachine):
    """Two members of a group beside a model: no record is got by two, none is lost, and a restart keeps all."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.copies = 0
        self.records: list[Record] = []

    @initialize()
    def begin(self) -> None:
        self.node = Node(self.folder / "0")
        for member in ("one", "two"):
            self.node.join(member)

    def teardown(self) -> None:
        if hasattr(self, "node"):
            self.drain()
            self.node.broker.close()
        shutil.rmtree(self.folder)

    def drain(self) -> None:
        """In the end all records are done."""
        self.node.clock.advance(LOCK_MS)
        self.expire()
        while got := self.node.got("one"):
            self.took("one", got)
            offsets = [offset for offset, _ in got]
            assert self.node.acknowledge("one", *((offset, offset, (ACCEPT,)) for offset in offsets)) is ErrorCode.NONE
            for offset in offsets:
                self.records[offset].state = "done"
        assert all(record.state == "done" for record in self.records)
        self.agrees()

    def took(self, member: str, got: Iterable[tuple[int, int]]) -> None:
        """Compare what a member got."""
        for offset, count in got:
            record = self.records[offset]
            assert record.state == "available", (offset, record)
            record.state, record.member, record.count = "acquired", member, record.count + 1
            record.until_ms = self.node.clock.monotonic_ms() + LOCK_MS
            assert count == record.count

    def free(self, record: Record) -> None:
        """Make a record available, or archive it after its last delivery."""
        record.state = "available" if record.count < LIMIT else "done"

    def expire(self) -> None:
        """End the locks whose time has come."""
        for record in self.records:
            if record.state == "acquired" and record.until_ms <= self.node.clock.monotonic_ms():
                self.free(record)

    @rule(count=st.integers(1, 6))
    def write(self, count: int) -> None:
        self.node.write(*[b"x"] * count)
        self.records += [Record() for _ in range(count)]

    @rule(member=st.sampled_from(["one", "two"]), most=st.integers(1, 8))
    def fetch(self, member: str, most: int) -> None:
        got = self.node.got(member, most)
        free = sum(record.state == "available" for record in self.records)
        assert len(got) == min(most, free)
        self.took(member, got)

    @precondition(lambda self: self.records and all(self.node.epochs.values()))
    @rule(data=st.data(), member=st.sampled_from(["one", "two"]))
    def acknowledge(self, data: st.DataObject, member: str) -> None:
        first = data.draw(st.integers(0, len(self.records) - 1))
        last = data.draw(st.integers(first, min(first + 4, len(self.records) - 1)))
        kinds = data.draw(st.lists(st.integers(0, 4), min_size=last - first + 1, max_size=last - first + 1))
        start = self.node.offset().start_offset
        mine = [self.records[offset] for offset in range(first, last + 1) if offset >= start]
        error = self.node.acknowledge(member, (first, last, tuple(kinds)))
        if start < 0:
            assert error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        if not all(record.state == "acquired" and record.member == member for record in mine):
            assert error is ErrorCode.INVALID_RECORD_STATE
            return
        assert error is ErrorCode.NONE
        for offset, kind in zip(range(first, last + 1), kinds, strict=True):
            record = self.records[offset]
            if offset < start:
                continue
            if kind == RENEW:
                record.until_ms = self.node.clock.monotonic_ms() + LOCK_MS
            elif kind == RELEASE:
                self.free(record)
            else:
                record.state = "done"

    @rule(ms=st.integers(1, LOCK_MS))
    def wait(self, ms: int) -> None:
        self.node.clock.advance(ms)
        self.expire()

    @rule(member=st.sampled_from(["one", "two"]))
    def leave(self, member: str) -> None:
        if self.node.epochs[member]:
            self.node.send(ShareAcknowledge(GROUP, member, -1))
            self.node.epochs[member] = 0
            for record in self.records:
                if record.state == "acquired" and record.member == member:
                    self.free(record)

    @rule()
    def restart_after_a_kill(self) -> None:
        """What is in the folder at this moment is what is left: locks, and the deliveries that they were, are not."""
        self.copies += 1
        left = self.folder / str(self.copies)
        shutil.copytree(self.node.folder, left)
        self.node.broker.close()
        self.node.folder = left
        self.node.start()
        self.node.epochs = {"one": 0, "two": 0}
        for member in ("one", "two"):
            self.node.join(member)
        for record in self.records:
            if record.state == "acquired":
                record.state, record.count = "available", record.count - 1

    @invariant()
    def agrees(self) -> None:
        """The start offset is that of the first record that is not done, and the lag counts what is not done."""
        found = self.node.offset() if hasattr(self, "node") else SharedOffset(-1)
        if found.start_offset >= 0:
            left = [offset for offset, record in enumerate(self.records) if record.state != "done"]
            assert found.start_offset == (left[0] if left else len(self.records))
            assert found.lag == len(left)


Shared.TestCase.settings = settings(stateful_step_count=30, max_examples=40, deadline=None)
TestShared = Shared.TestCase


# --- members ------------------------------------------------------------------------------


def test_what_is_released_comes_again_and_what_is_done_does_not(node: Node):
    """Accepted, released, rejected and not acknowledged, with one type for each record."""
    assert node.got("one") == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert node.got("two") == []
    assert node.acknowledge("one", (0, 2, (ACCEPT, RELEASE, REJECT))) is ErrorCode.NONE

    assert node.got("two") == [(1, 2)]
    assert node.offset() == SharedOffset(1, 0, 2)


def test_acknowledgements_that_are_not_ones_own_change_nothing(node: Node):
    """One batch of two is refused, so both are; so are types, orders and numbers of types that make no sense."""
    node.got("one", 2)
    node.got("two", 2)

    assert node.acknowledge("one", (0, 0, (ACCEPT,)), (2, 2, (ACCEPT,))) is ErrorCode.INVALID_RECORD_STATE
    for wrong in ([(1, 0, (ACCEPT,))], [(0, 1, (ACCEPT,) * 3)], [(0, 0, (5,))], [(0, 0, ())]):
        assert node.acknowledge("one", *wrong) is ErrorCode.INVALID_REQUEST
    assert node.offset().lag == 4
    assert node.acknowledge("one", (0, 1, (ACCEPT,))) is ErrorCode.NONE


def test_a_lock_ends_unless_it_is_renewed(node: Node):
    """What one member does not acknowledge in time, another one gets."""
    node.got("one", 2)
    node.clock.advance(LOCK_MS - 1)
    assert node.acknowledge("one", (1, 1, (RENEW,))) is ErrorCode.NONE
    node.clock.advance(1)

    assert node.got("two", 1) == [(0, 2)]
    assert node.acknowledge("one", (1, 1, (ACCEPT,))) is ErrorCode.NONE
    node.configure({"share.renew.acknowledge.enable": "false"})
    assert node.acknowledge("two", (0, 0, (RENEW,))) is ErrorCode.INVALID_REQUEST


def test_a_record_is_delivered_as_often_as_the_limit_of_its_group_says(node: Node):
    """Then it is archived; the limit of the group wins over that of the broker."""
    node.configure({"share.delivery.count.limit": "2"})
    for count in (1, 2):
        assert node.got("one", 1) == [(0, count)]
        node.acknowledge("one", (0, 0, (RELEASE,)))

    assert node.got("one", 1) == [(1, 1)]


def test_records_in_flight_are_limited(node: Node):
    """As long as the first record is locked, so many others are given out at most."""
    node.configure({"share.partition.max.record.locks": "100"})
    node.write(*[b"x"] * 200)
    assert len(node.got("one")) == 100

    assert node.acknowledge("one", (1, 99, (ACCEPT,))) is ErrorCode.NONE
    assert node.got("one") == []
    assert node.acknowledge("one", (0, 0, (ACCEPT,))) is ErrorCode.NONE
    assert len(node.got("one")) == 100


def test_a_fetch_waits_for_records_that_are_written_or_given_back(node: Node):
    """It is answered when another member releases records, when records are written, and when its time is over."""
    node.got("one")
    assert node.fetch("two", wait_ms=500) is None
    node.acknowledge("one", (1, 1, (RELEASE,)))
    assert counted(node.came()) == [(1, 2)]

    assert node.fetch("two", wait_ms=500) is None
    node.write(b"e")
    assert counted(node.came()) == [(4, 1)]

    assert node.fetch("two", wait_ms=500) is None
    node.clock.advance(500)
    assert counted(node.came()) == []


def test_a_session_has_epochs(node: Node):
    """A request of another epoch is refused; a new session may begin at any time, and the end releases the records."""
    node.got("one")
    for epoch, error in ((5, ErrorCode.INVALID_SHARE_SESSION_EPOCH), (0, ErrorCode.INVALID_SHARE_SESSION_EPOCH)):
        assert node.send(ShareAcknowledge(GROUP, "one", epoch)).error is error
    assert node.send(ShareAcknowledge(GROUP, "two", 1)).error is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert node.send(ShareAcknowledge("other", "one", 1)).error is ErrorCode.GROUP_ID_NOT_FOUND

    assert node.send(ShareAcknowledge(GROUP, "one", -1)).error is ErrorCode.NONE
    assert node.got("two") == [(0, 2), (1, 2), (2, 2), (3, 2)]


def test_records_of_transactions_are_delivered_when_they_are_committed(node: Node):
    """With ``read_committed``, aborted ones are skipped, open ones waited for; markers are never delivered."""
    node.configure({"share.isolation.level": "read_committed"})
    node.got("one")
    with Producer(node.broker, transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(TOPIC, b"e", partition=0)
        producer.flush()
        assert node.got("two") == []
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(TOPIC, b"f", partition=0)
        producer.commit_transaction()

    assert node.got("two") == [(6, 1)]
    node.acknowledge("one", (0, 3, (ACCEPT,)))
    node.acknowledge("two", (6, 6, (ACCEPT,)))
    assert node.offset().start_offset in (7, 8)
    assert node.got("one") == []
    assert node.offset().lag == 0


def test_deleted_records_are_not_waited_for(node: Node):
    """The start of the group follows the start of the log."""
    node.got("one", 3)
    with Admin(node.broker) as admin:
        admin.delete_records({PARTITION: 2})

    assert node.got("two") == [(3, 1)]
    assert node.offset().start_offset == 2
    assert node.acknowledge("one", (0, 2, (ACCEPT,))) is ErrorCode.NONE
    assert node.offset().start_offset == 3


# --- where a group begins, and what tools do ----------------------------------------------


@pytest.mark.parametrize(
    ("reset", "first"), [("latest", 4), ("earliest", 0), ("by_duration:PT10S", 2), ("by_duration:PT0S", 4)]
)
def test_a_group_begins_where_its_setting_says(reset: str, first: int):
    """By duration: at the first record that is not older."""
    node = Node(given={"share.auto.offset.reset": reset})
    node.clock.advance(100_000)
    now_ms = node.clock.now_ms()
    times = [now_ms - 20_000, now_ms - 15_000, now_ms - 5_000, now_ms - 1_000]
    node.broker.append(PARTITION, Block([None] * 4, [b"x"] * 4, times))
    node.join("one")

    node.got("one", 1)

    assert node.offset().start_offset == first
    node.broker.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.auto.offset.reset", "by_duration:P"),
        ("share.auto.offset.reset", "by_duration:-PT1S"),
        ("share.isolation.level", "committed"),
        ("share.delivery.count.limit", "11"),
        ("share.record.lock.duration.ms", "999"),
    ],
)
def test_settings_of_groups_are_checked(node: Node, name: str, value: str):
    """With what they may be instead."""
    altered = ChangedConfigs(ResourceType.GROUP, GROUP, (ConfigChange(name, ConfigOperation.SET, value),))

    (result,) = node.send(IncrementalAlterConfigs((altered,))).responses

    assert result.error is ErrorCode.INVALID_CONFIG
    assert "must be" in result.message


def test_offsets_are_altered_and_deleted_while_the_group_has_no_members(node: Node):
    """With members both are refused; what was deleted begins anew."""
    node.got("one")
    node.acknowledge("one", (0, 3, (ACCEPT,)))
    alter, delete = AlterShareGroupOffsets(GROUP, {PARTITION: 2}), DeleteShareGroupOffsets(GROUP, (TOPIC,))
    assert {node.send(alter).error, node.send(delete).error} == {ErrorCode.NON_EMPTY_GROUP}
    assert node.send(DeleteGroup(GROUP)).error is ErrorCode.NON_EMPTY_GROUP
    for member in ("one", "two"):
        assert node.send(ShareGroupHeartbeat(GROUP, member, -1)).error is ErrorCode.NONE

    assert node.send(alter).errors == {PARTITION: (ErrorCode.NONE, "")}
    assert node.offset() == SharedOffset(2, 0, 2)
    unknown = AlterShareGroupOffsets(GROUP, {TopicPartition(TOPIC, 9): 2})
    assert {code for code, _ in node.send(unknown).errors.values()} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert node.send(delete).errors[TOPIC].error is ErrorCode.NONE
    assert node.send(DescribeShareGroupOffsets(GROUP, (PARTITION,))).offsets[PARTITION].start_offset == -1

    assert node.send(DeleteGroup(GROUP)).error is ErrorCode.NONE
    assert node.send(DescribeShareGroupOffsets(GROUP)).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_is_described_and_listed_as_share_group_and_takes_no_other_members(node: Node):
    """Neither while it has members nor after that."""
    described = node.send(ShareGroupDescribe(GROUP))
    assert (described.state, described.assignor_name) == ("Stable", "simple")
    assert [member.member_id for member in described.members] == ["one", "two"]
    assert node.send(ListGroups(types_filter=("share",))).groups == ((GROUP, "share", "Stable", "Share"),)
    for member in ("one", "two"):
        node.send(ShareGroupHeartbeat(GROUP, member, -1))

    joined = node.send(JoinGroup(GROUP, "", "consumer", (("range", b""),), 10_000, 10_000))
    assert joined.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_deleted_topic_is_forgotten(node: Node):
    """A topic of the same name is another one."""
    node.got("one")
    node.acknowledge("one", (0, 3, (ACCEPT,)))
    node.broker.delete_topic(TOPIC)
    node.broker.create_topic(TOPIC, 1)
    node.write(b"new")

    assert node.got("two") == [(0, 1)]


def test_the_log_of_share_groups_does_not_grow_without_end():
    """What lies before the last snapshots is deleted, also if a group rests; what is left is enough to start again."""
    log = PartitionLog(SHARES_PARTITION, ArrayStorage(), parse_config({}))

    def append(partition: TopicPartition, blocks: Sequence[Block], now_ms: int) -> None:
        log.append(blocks, now_ms)

    def started() -> ShareStore:
        return ShareStore(lambda partition: log, append, lambda now_ms: now_ms)

    resting, busy = ShareKey("resting", bytes(16), 0), ShareKey("busy", bytes(16), 1)
    store = started()
    store.begin([(resting, 7), (busy, 0)], 0)
    share = store.get(busy)
    assert share is not None
    for offset in range(13_000):
        share.state.acquire(offset, offset + 1, [(offset, offset)], "one", 1)
        share.state.acknowledge("one", [AcknowledgementBatch(offset, offset, (ACCEPT,))], LIMIT, 1)
        store.store([busy], 0)

    assert 9_000 < log.start_offset <= log.high_watermark - UPDATES_PER_SNAPSHOT
    again = started()
    again.load(log.read(log.start_offset, 100_000))
    assert {key: found.state.start_offset for key in (resting, busy) if (found := again.get(key))} == {
        resting: 7,
        busy: 13_000,
    }
