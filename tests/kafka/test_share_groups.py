"""Share groups (KIP-932): our members on every way to a broker, and beside Kafka's on a real one."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from attrs import define, field

from streams import Topic
from streams.clients import (
    AcknowledgeType,
    Admin,
    GroupNotEmptyError,
    Network,
    Producer,
    ShareConsumer,
    ShareRecord,
    UnacknowledgedError,
    UndeliveredError,
    WakeupError,
)
from streams.core.clock import SystemClock
from streams.core.errors import BrokerError, ConfigError, SerializationError
from streams.core.records import TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import LEAVE_EPOCH
from streams.protocol.messages import FINAL_EPOCH, FindCoordinator, TopicSpec
from streams.protocol.request import R, RequestFor
from streams.protocol.share_group_messages import ShareAcknowledge, ShareGroupHeartbeat
from streams.protocol.transport import ANY_NODE, Cluster
from tests.kafka.node import KafkaNode, compiled, jars
from tests.kafka.processes import Started
from tests.waiting import NEVER_MS, until


@define(eq=False)
class Group:
    """A share group of one test over one topic, which begins with the first record, and its members."""

    cluster: Cluster
    name: str
    admin: Admin
    members: list[ShareConsumer] = field(factory=list)

    @property
    def topic(self) -> Topic[str, str]:
        return Topic(self.name, key=str, value=str)

    def member(self, **settings: object) -> ShareConsumer:
        """Return a new member, which joins when it is polled."""
        consumer = ShareConsumer(self.cluster, self.name, **settings)
        self.members.append(consumer)
        consumer.subscribe([self.topic])
        return consumer

    def write(self, *values: str, partitions: int = 1) -> None:
        """Write values to the partitions by turns."""
        with Producer(self.cluster) as producer:
            for number, value in enumerate(values):
                producer.send(self.topic, value, key="k", partition=number % partitions)

    def configure(self, **settings: object) -> None:
        self.admin.alter_group_configs(
            self.name, {f"share.{name.replace('_', '.')}": str(value) for name, value in settings.items()}
        )

    def aside(self, node_id: int, request: RequestFor[R]) -> R:
        """Send a request on a connection of its own."""
        network = Network(self.cluster.connect("aside"), SystemClock())
        try:
            return network.request(node_id, request)
        finally:
            network.close()

    def leader(self) -> int:
        return self.admin.describe_topics([self.name])[self.name].leaders[0]

    def member_ids(self) -> list[str]:
        """Return the ids of the members; there are none before the group is there."""
        if self.name not in [found.group_id for found in self.admin.list_groups()]:
            return []
        return [member.member_id for member in self.admin.describe_share_groups([self.name])[self.name].members]


def idle(consumer: ShareConsumer) -> None:
    """Poll, and get nothing."""
    assert consumer.poll(50) == []


@pytest.fixture
def group(cluster: Cluster, name: str) -> Iterator[Group]:
    with Admin(cluster) as admin:
        # With more partitions than members, each partition has one member.
        admin.create_topics([TopicSpec(name, 1)])
        group = Group(cluster, name, admin)
        group.configure(auto_offset_reset="earliest", heartbeat_interval_ms=500)
        yield group
        for member in group.members:
            member.close()


def got(consumer: ShareConsumer, count: int = 1) -> list[ShareRecord]:
    """Poll until so many records have come."""
    records: list[ShareRecord] = []
    until(lambda: len(records) >= count, lambda: records.extend(consumer.poll(200)), lambda: records)
    return records


def values(records: Sequence[ShareRecord]) -> list[str]:
    return sorted(record.value for record in records)


@pytest.mark.kafka
@pytest.mark.parametrize("cluster", ["kafka"], indirect=True)
def test_java_and_ours_share_a_group(group: Group, kafka: KafkaNode, tmp_path: Path):
    """Two of ours and one of Kafka's: each record is accepted by one; what is released comes again, to any of them."""
    classes = compiled(Path(__file__).parent / "java" / "ShareMember.java", tmp_path)
    path = ":".join(map(str, (classes, *jars("streams"))))
    command = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path, "ShareMember"]
    command += [kafka.bootstrap_servers, group.name, group.name]
    expected: list[str] = []
    ours: list[ShareRecord] = []

    def turn() -> None:
        for consumer in group.members:
            for record in consumer.poll(20):
                is_again = record.value.startswith("again") and record.delivery_count == 1
                consumer.acknowledge(record, AcknowledgeType.RELEASE if is_again else AcknowledgeType.ACCEPT)
                ours.append(record)

    def theirs() -> list[tuple[int, str]]:
        """Return delivery count and value of each record in the whole lines that Java has printed."""
        lines = (line.split(" ", 3) for line in java.said.rpartition("\n")[0].splitlines())
        return [(int(line[2]), line[3]) for line in lines if line[0].isdigit()]

    def accepted() -> Counter[str]:
        found = [*theirs(), *((record.delivery_count, record.value) for record in ours)]
        return Counter(value for count, value in found if count > 1 or not value.startswith("again"))

    def more() -> None:
        """Write some records, and wait until they are accepted."""
        values = [
            f"{'again ' if number % 5 == 0 else ''}{number}" for number in range(len(expected), len(expected) + 50)
        ]
        group.write(*values, partitions=2)
        expected.extend(values)
        until(lambda: sum(accepted().values()) >= len(expected), turn, lambda: java.said)

    with Started(command, tmp_path / "java.log") as java:
        for _ in range(2):
            group.member(share_acknowledgement_mode="explicit", max_poll_records=5)
        group.admin.create_partitions({group.name: 2})
        until(lambda: len(group.member_ids()) == 3, turn)
        until(lambda: ours and theirs(), more)
        until(lambda: lag(group) == 0, turn)

    assert accepted() == Counter(expected)


def lag(group: Group) -> int:
    """How many records the group has not finished, or -1 if the broker does not know."""
    return sum(offset.lag for offset in group.admin.share_group_offsets(group.name).values())


def test_next_poll_accepts_what_the_last_has_returned(group: Group):
    """Without an acknowledgement, a closed member has released its last records: another one gets them again."""
    one = group.member()
    group.write("a")
    assert values(got(one)) == ["a"]
    group.write("b")
    assert values(got(one)) == ["b"]
    with pytest.raises(ConfigError, match="share_acknowledgement_mode='explicit'"):
        one.acknowledge(ShareRecord(group.name, 0, 0, 0, "k", "a", (), 1))
    one.close()

    two = group.member()
    (again,) = got(two)

    assert (again.value, again.delivery_count) == ("b", 2)
    assert two.commit_sync() == {TopicPartition(group.name, 0): None}
    assert lag(group) == 0


def test_each_record_is_acknowledged_by_itself(group: Group):
    """Accepted and rejected records are gone, released ones come again, renewed ones stay with their member."""
    one = group.member(share_acknowledgement_mode="explicit")
    done: list[tuple[int, BrokerError | None]] = []
    one.set_acknowledgement_commit_callback(
        lambda found, error: done.extend((offset, error) for offsets in found.values() for offset in offsets)
    )
    group.write("accept", "release", "reject", "renew")
    records = {record.value: record for record in got(one, 4)}

    with pytest.raises(UnacknowledgedError, match="4 records that have no acknowledgement") as raised:
        one.poll()
    assert raised.value.offsets == {TopicPartition(group.name, 0): [0, 1, 2, 3]}
    with pytest.raises(UndeliveredError, match="at 99 cannot be acknowledged: it is not among the 4"):
        one.acknowledge(records["accept"]._replace(offset=99))

    for value, record in records.items():
        one.acknowledge(record, AcknowledgeType[value.upper()])
    (renewed,) = got(one)
    assert renewed == records["renew"]
    one.acknowledge(renewed)
    (released,) = got(one)
    assert (released.value, released.delivery_count) == ("release", 2)
    one.acknowledge(released)
    one.commit_async()
    until(lambda: len(done) == 6, lambda: idle(one), lambda: done)

    with pytest.raises(UndeliveredError, match="not among the 0 records"):
        one.acknowledge(released)
    assert sorted(done) == [(offset, None) for offset in (0, 1, 1, 2, 3, 3)]
    assert lag(group) == 0


def test_what_is_never_accepted_is_given_up(group: Group):
    """After the limit of deliveries, which is five by default, the broker archives the record."""
    one = group.member(share_acknowledgement_mode="explicit")
    group.write("bad")
    counts = []
    while len(counts) < 5:
        (record,) = got(one)
        counts.append(record.delivery_count)
        one.acknowledge(record, AcknowledgeType.RELEASE)
    group.write("good")

    (record,) = got(one)

    assert counts == [1, 2, 3, 4, 5]
    assert record.value == "good"


def test_lock_that_has_ended_is_told(group: Group):
    """Another member gets the record, so the acknowledgement of the first comes too late."""
    group.configure(record_lock_duration_ms=1_000)
    one = group.member(share_acknowledgement_mode="explicit")
    group.write("slow")
    (record,) = got(one)
    assert one.acquisition_lock_timeout_ms == 1_000
    two = group.member(share_acknowledgement_mode="explicit")
    (again,) = got(two)
    assert again == record._replace(delivery_count=2)

    one.acknowledge(record)
    two.acknowledge(again)
    place = TopicPartition(group.name, 0)
    late = one.commit_sync()[place]

    assert late is not None
    assert late.code is ErrorCode.INVALID_RECORD_STATE
    assert "share.record.lock.duration.ms" in str(late)


@pytest.mark.parametrize("is_ended", [True, False])
def test_lost_session_is_begun_again(group: Group, is_ended: bool):
    """Whether the session has ended or has another epoch: the acknowledgement fails, and the consumer goes on."""
    one = group.member(share_acknowledgement_mode="explicit")
    group.write("a")
    (record,) = got(one)
    (member,), leader = group.member_ids(), group.leader()
    if is_ended:
        group.aside(leader, ShareAcknowledge(group.name, member, FINAL_EPOCH))
    else:
        # One of these has the epoch of the consumer's next request.
        codes = [group.aside(leader, ShareAcknowledge(group.name, member, epoch)).error for epoch in range(1, 200)]
        assert ErrorCode.NONE in codes
    one.acknowledge(record)
    (error,) = one.commit_sync().values()

    assert error is not None
    # The embedded broker ends a session with any connection that has sent a request of it.
    assert error.code in {ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH}
    group.write("b")
    seen: set[str] = set()

    def turn() -> None:
        for found in one.poll(100):
            seen.add(found.value)
            one.acknowledge(found)

    until(lambda: "b" in seen, turn)
    if is_ended:
        until(lambda: "a" in seen, turn)
        assert set(one.commit_sync().values()) <= {None}


def test_removed_member_joins_again(group: Group):
    """A member that the coordinator does not know joins with its next heartbeat, and goes on."""
    one = group.member()
    group.write("a")
    got(one)
    (member,) = group.member_ids()
    coordinator = group.aside(ANY_NODE, FindCoordinator(group.name)).node_id
    group.aside(coordinator, ShareGroupHeartbeat(group.name, member, LEAVE_EPOCH))
    group.write("b")
    assert values(got(one)) == ["b"]

    until(lambda: member in group.member_ids(), lambda: idle(one))


def test_record_limit_holds_for_each_poll(group: Group):
    """With batch_optimized, one batch may be more than max_poll_records; with record_limit it never is."""
    with Producer(group.cluster, linger_ms=NEVER_MS) as producer:
        for number in range(20):
            producer.send(group.topic, str(number), key="k", partition=0)
    one = group.member(max_poll_records=3, share_acquire_mode="record_limit")
    sizes: list[int] = []
    until(lambda: sum(sizes) >= 20, lambda: sizes.append(len(one.poll(200))), lambda: sizes)

    assert max(sizes) <= 3
    assert sum(sizes) == 20


def test_unreadable_record_is_released_and_can_be_rejected(group: Group):
    """The others are returned first; the error says what to do, and what the application decides is done."""
    numbers = Topic(group.name, key=str, value=int)
    one = ShareConsumer(group.cluster, group.name, share_acknowledgement_mode="explicit")
    group.members.append(one)
    one.subscribe([numbers])
    with Producer(group.cluster) as producer:
        for value in (b"1" * 8, b"no number", b"2" * 8):
            producer.send(Topic(group.name, key=bytes, value=bytes), value, key=b"k", partition=0)
    records: list[ShareRecord] = []
    errors: list[SerializationError] = []

    def turn() -> None:
        try:
            found = one.poll(100)
        except SerializationError as error:
            errors.append(error)
            if len(errors) == 2:
                one.acknowledge_offset(TopicPartition(group.name, 0), 1, AcknowledgeType.REJECT)
            return
        for record in found:
            records.append(record)
            one.acknowledge(record)

    until(lambda: len(errors) == 2, turn)
    one.commit_sync()
    until(lambda: lag(group) == 0, turn)

    assert [record.offset for record in records] == [0, 2]
    assert "at 1, delivery 1" in str(errors[0])
    assert "AcknowledgeType.REJECT" in str(errors[0])
    assert "at 1, delivery 2" in str(errors[1])


def test_wakeup_ends_a_poll_without_losing_records(group: Group):
    """The poll of another thread raises; the next one returns what has come."""
    one = group.member()
    raised: list[Exception] = []

    def poll() -> None:
        try:
            one.poll(NEVER_MS)
        except WakeupError as error:
            raised.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    one.wakeup()
    thread.join()
    group.write("a")

    assert len(raised) == 1
    assert values(got(one)) == ["a"]


def test_unsubscribed_member_gives_back_what_it_has(group: Group):
    """Records that were returned can still be accepted; without a subscription there is nothing to poll."""
    one = group.member()
    group.write("a")
    got(one)
    one.unsubscribe()
    with pytest.raises(ConfigError, match="poll\\(\\) without a subscription"):
        one.poll()

    assert one.commit_sync() == {TopicPartition(group.name, 0): None}
    assert lag(group) == 0
    one.subscribe([group.name])
    group.write("b")
    assert values(got(one)) == ["b"]


def test_admin_describes_and_moves_a_group(group: Group):
    """Its offsets are read and set, and it is deleted when nobody is in it."""
    one = group.member(client_id="reader")
    group.write("a", "b")
    assert len(got(one, 2)) == 2
    one.commit_sync()
    described = group.admin.describe_share_groups([group.name])[group.name]
    (member,) = described.members

    assert (described.state, member.client_id, tuple(member.topics)) == ("Stable", "reader", (group.name,))
    assert ("share", "Stable") in [
        (g.protocol_type, g.state) for g in group.admin.list_groups() if g.group_id == group.name
    ]
    place = TopicPartition(group.name, 0)
    until(lambda: lag(group) == 0, lambda: idle(one))
    with pytest.raises(GroupNotEmptyError, match="stop them first"):
        group.admin.alter_share_group_offsets(group.name, {place: 0})
    one.close()

    group.admin.alter_share_group_offsets(group.name, {place: 1})
    two = group.member()
    assert values(got(two)) == ["b"]
    two.commit_sync()
    two.close()
    group.admin.delete_share_group_offsets(group.name, [group.name])
    assert all(one.start_offset < 0 for one in group.admin.share_group_offsets(group.name).values())
    group.admin.delete_group(group.name)
    with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
        group.admin.describe_share_groups([group.name])
