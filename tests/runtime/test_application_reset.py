"""An application is reset only while it does not run; only what is its own is deleted."""

from base64 import b64encode
from struct import pack

import pytest

from streams import (
    Consumer,
    EmbeddedBroker,
    Producer,
    StateLockedError,
    Streams,
    StreamsBuilder,
    Topic,
    UnknownTopicError,
)
from streams.clients import EARLIEST, Admin, GroupNotEmptyError
from streams.core.blocks.records import TopicPartition
from streams.core.errors import ConfigError
from streams.protocol.group_messages import OffsetAndMetadata
from streams.runtime import ResetPlan, ResetTarget
from streams.state import StateDirectory

words = Topic("words", key=str, value=int)
sums = Topic("sums", key=str, value=int)
FROM_START = ResetTarget(to=EARLIEST)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(words).group_by_key().reduce(lambda one, other: one + other, name="by-word").to_stream().to(sums)


@pytest.fixture
def broker():
    with EmbeddedBroker(auto_create_topics=False) as broker:
        broker.create_topic("words")
        broker.create_topic("sums")
        yield broker


@pytest.fixture
def admin(broker):
    with Admin(broker) as admin:
        yield admin


def send(broker, *values):
    with Producer(broker) as producer:
        for value in values:
            producer.send(words, value, key="a")


def running(broker, state_dir):
    settings = {"state_dir": str(state_dir), "commit_interval_ms": 10}
    return Streams(topology, application_id="shop", broker=broker, **settings)


def process(broker, state_dir, count):
    """Run until the output has so many records."""
    with running(broker, state_dir) as streams:
        while broker.end_offset(TopicPartition("sums", 0)) < count:
            assert not streams.wait(5)


def test_reset_application_begins_from_the_start(broker, admin, tmp_path):
    send(broker, 1, 2, 3)
    process(broker, tmp_path, 3)

    ResetPlan.of(admin, "shop", FROM_START, outputs=["sums"], state_dirs=[tmp_path]).execute(admin)

    assert admin.committed_offsets("shop")[TopicPartition("words", 0)].offset == 0
    assert admin.list_topics() == ["sums", "words"]
    assert list(StateDirectory.of(tmp_path, "shop").tasks()) == []
    process(broker, tmp_path, 6)
    found = broker.read(TopicPartition("sums", 0), 3)
    assert [sums.value_serde.deserialize(value) for block in found for value in block.values] == [1, 3, 6]


def test_running_application_is_not_reset(broker, admin, tmp_path):
    send(broker, 1)
    with running(broker, tmp_path) as streams:
        while broker.end_offset(TopicPartition("sums", 0)) < 1:
            assert not streams.wait(5)
        plan = ResetPlan.of(admin, "shop", FROM_START, outputs=["sums"])

        with pytest.raises(GroupNotEmptyError, match=r"runs .*stop it"):
            plan.execute(admin)

        assert "shop-by-word-changelog" in admin.list_topics()
        assert len(plan.members) == 1


def test_state_of_a_running_process_is_not_deleted(broker, admin, tmp_path):
    send(broker, 1)
    process(broker, tmp_path, 1)
    directory = StateDirectory.of(tmp_path, "shop")
    directory.lock()

    with pytest.raises(StateLockedError):
        ResetPlan.of(admin, "shop", FROM_START, state_dirs=[tmp_path]).execute(admin)

    directory.unlock()


def test_force_removes_members(broker, admin):
    """A member that has joined and then stopped polling stays in the group until its session expires."""
    with Consumer(broker, "shop") as member:
        member.subscribe(["words"])
        while not member.assignment():
            member.poll(100)
        plan = ResetPlan.of(admin, "shop", FROM_START, topics=["words"])
        assert len(plan.members) == 1

        plan.execute(admin, force=True)

        assert list(admin.describe_group("shop").members) == []
        assert admin.committed_offsets("shop")[TopicPartition("words", 0)].offset == 0


def test_topics_of_an_application_with_a_longer_id_stay(broker, admin):
    own = ("shop-sums-changelog", "shop-by-key-repartition", "shop-progress")
    for name in (*own, "shop-eu-sums-changelog", "shop-eu-progress", "shop-orders"):
        broker.create_topic(name)
    admin.alter_offsets("shop-eu", {TopicPartition("words", 0): 0})

    ResetPlan.of(admin, "shop", FROM_START).execute(admin)

    assert admin.list_topics() == ["shop-eu-progress", "shop-eu-sums-changelog", "shop-orders", "sums", "words"]


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        (ResetTarget(to=EARLIEST), 1),
        (ResetTarget(to=25), 3),
        (ResetTarget(to=99), 5),
        (ResetTarget(offset=0), 1),
        (ResetTarget(offset=9), 5),
        (ResetTarget(shift=-1), 3),
        (ResetTarget(shift=-9), 1),
        (ResetTarget(offsets={TopicPartition("words", 0): 2}), 2),
    ],
    ids=str,
)
def test_offsets_are_within_the_log(broker, admin, target, offset):
    with Producer(broker) as producer:
        for number in range(5):
            producer.send(words, number, key="a", timestamp_ms=10 * number)
    place = TopicPartition("words", 0)
    admin.delete_records({place: 1})
    admin.alter_offsets("shop", {place: 4})

    assert ResetPlan.of(admin, "shop", target).offsets == {place: (4, offset)}


def test_application_that_is_not_there_is_named(admin):
    with pytest.raises(UnknownTopicError, match="no application 'shpo'"):
        ResetPlan.of(admin, "shpo", FROM_START)


def test_target_is_one_of_several():
    with pytest.raises(ConfigError, match="exactly one"):
        ResetTarget(to=EARLIEST, shift=1)


def test_offsets_of_another_release_are_reset_and_the_plan_says_what_is_lost(broker, admin):
    """Of version 2, whose number of partition groups cannot be read."""
    foreign = b64encode(b"\x02" + pack(">qi", 70, 0) + b'{"v":2}').decode()
    words_0 = TopicPartition("words", 0)
    admin.alter_offsets("shop", {words_0: OffsetAndMetadata(0, foreign)})

    plan = ResetPlan.of(admin, "shop", FROM_START)
    plan.execute(admin)

    assert any("another release has committed its offsets" in line for line in plan.lines())
    assert admin.committed_offsets("shop")[words_0] == OffsetAndMetadata(0, "")
